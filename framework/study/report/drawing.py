"""Figures to SVG text and PNG files. The only room that knows matplotlib's figures."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from framework.errors import HeadwayError

if TYPE_CHECKING:
    from pathlib import Path

    from framework.study.report.charts import Chart

PANEL_INCHES = (4.0, 3.0)
MOST_COLUMNS = 3


def svg(chart: Chart) -> str:
    """The figure as an SVG element, the same for equal charts."""
    buffer = io.StringIO()
    _figure(chart).savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def write_png(chart: Chart, path: Path) -> None:
    """The figure as a file for a paper."""
    _figure(chart).savefig(path, dpi=200, metadata={"Software": None})


def _figure(chart: Chart) -> Any:
    try:
        import matplotlib as mpl  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise HeadwayError(
            f"figures need matplotlib, which cannot be imported ({error}); install headway[report]"
        ) from error
    mpl.rcParams["svg.hashsalt"] = chart.name  # else ids differ from run to run
    columns = min(MOST_COLUMNS, len(chart.panels))
    rows = -(-len(chart.panels) // columns)
    size = PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + 0.4
    figure = Figure(figsize=size, layout="constrained")
    for place, draw in enumerate(chart.panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
    labels: dict[str, Any] = {}
    for axes in figure.axes:
        if axes.get_legend() is None:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                labels.setdefault(label, handle)
    if labels:
        figure.legend(
            labels.values(), labels.keys(), loc="outside upper center", ncols=min(6, len(labels))
        )
    return figure
