"""How long a step takes.

linear.py     a sum of one term for each thing that costs time
table.py      the same with a measured curve in place of the terms of weights and arithmetic
datasheet.py  a sum for a model nobody profiled, from its config.json and a GPU's data sheet
loading.py    any of them by name or file
"""

from framework.latency.datasheet import from_model, gpu_names
from framework.latency.linear import TERMS, LinearLatency
from framework.latency.loading import latency_from, latency_names, load_latency
from framework.latency.table import TableLatency

__all__ = [
    "TERMS",
    "LinearLatency",
    "TableLatency",
    "from_model",
    "gpu_names",
    "latency_from",
    "latency_names",
    "load_latency",
]
