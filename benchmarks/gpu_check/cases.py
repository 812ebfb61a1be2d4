"""A case: one kernel on one input, and how far it may be off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.gpu_check.place import Place

ULP = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
ATTENTION_TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}


@frozen
class Case:
    """One kernel on one input.

    Attributes:
        kernel: its launcher's name.
        what: the input in some words.
        work: runs it; the largest error, relative to the largest expected value.
        ulps: how many units in the last place it may be off; 0 = equal bit for bit, None = what
            products of rounded numbers may be off.
        most: the tolerance in every dtype, where results are fp32 or the error is a share of rows.
        in_toy: part of the toy run.
    """

    kernel: str
    what: str
    work: Callable[[Place, torch.dtype], float]
    ulps: float | None = 2.0
    most: float | None = None
    in_toy: bool = True

    def tolerance(self, dtype: torch.dtype) -> float:
        """Of the error."""
        if self.most is not None:
            return self.most
        return ATTENTION_TOLERANCE[dtype] if self.ulps is None else self.ulps * ULP[dtype]


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in fp32, for a reference that changes it."""
    return tensor.to(torch.float32, copy=True)


def gap(*pairs: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The largest error of (found, expected); infinite where one is NaN and the other is not.

    Raises:
        ValueError: shapes differ.
    """
    worst = 0.0
    for found, expected in pairs:
        if found.shape != expected.shape:
            raise ValueError(f"shape {list(found.shape)}, expected {list(expected.shape)}")
        left, right = found.double(), expected.double()
        if not torch.equal(left.isfinite(), right.isfinite()):
            return math.inf
        usual = right.isfinite()
        left, right = left[usual], right[usual]
        if right.numel():
            scale = float(right.abs().max()) or 1.0
            worst = max(worst, float((left - right).abs().max()) / scale)
    return worst


def unequal(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The share of rows that differ."""
    return float((found != expected).flatten(1).any(dim=1).double().mean())
