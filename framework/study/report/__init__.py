"""A comparison as one HTML page that opens offline, and as PNG figures.

charts.py   what each figure shows
page.py     the page around them

Figures are matplotlib's (extra `report`), imported where they are drawn.
"""

from framework.study.report.page import write_figures, write_report

__all__ = ["write_figures", "write_report"]
