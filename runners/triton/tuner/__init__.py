"""Find better rows for the table of kernel sizes by trying some on a GPU, within a time.

`python -m runners.triton.tuner --seconds 600 --out table.json`
"""
