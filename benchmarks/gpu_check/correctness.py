"""Every kernel on the GPU against its reference in torch, which is given the same values in fp32.

Errors are relative to the largest expected value, so that one tolerance serves all sizes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from benchmarks.gpu_check.attention_cases import ATTENTION
from benchmarks.gpu_check.kernel_cases import KERNELS
from benchmarks.gpu_check.part import Check, Figures, Item
from benchmarks.gpu_check.sampling_cases import SAMPLING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.gpu_check.cases import Case
    from benchmarks.gpu_check.place import Place

CASES = (*ATTENTION, *KERNELS, *SAMPLING)


def items(check: Check) -> Iterator[Item]:
    """Every case in every dtype."""
    place = check.place
    for dtype in place.dtypes:
        for case in CASES:
            if place.is_toy and not case.in_toy:
                continue
            short = str(dtype).removeprefix("torch.")
            name = f"{case.kernel} {short}: {case.what}"
            yield Item(name, partial(run, case, place, dtype))


def run(case: Case, place: Place, dtype: torch.dtype) -> Figures:
    """One case in one dtype."""
    torch.manual_seed(0)
    error, tolerance = case.work(place, dtype), case.tolerance(dtype)
    return {
        "error": float(f"{error:.3g}"),
        "tolerance": float(f"{tolerance:.3g}"),
        "passed": error <= tolerance,
    }


def conclude(found: dict[str, Figures]) -> Figures:
    """The largest error of each kernel and dtype; passed if no case failed and none is missing."""
    kernels: dict[str, Figures] = {}
    for name, figures in found.items():
        kernel = name.partition(":")[0]
        row = kernels.setdefault(kernel, {"cases": 0, "max_error": 0.0, "failed": []})
        row["cases"] += 1
        if "skipped" in figures:
            row["failed"].append(f"{name}: skipped")
        elif not figures.get("passed", False):
            row["failed"].append(name)
        error = figures.get("error", 0.0)
        row["max_error"] = max(row["max_error"], error if isinstance(error, float) else 0.0)
    failed = [name for row in kernels.values() for name in row["failed"]]
    return {"passed": not failed, "failed": failed, "kernels": kernels}
