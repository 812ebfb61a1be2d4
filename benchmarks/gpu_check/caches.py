"""Paged caches whose blocks lie scattered, as after a day of serving."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from attrs import define

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gpu_check.place import Place

BLOCK_SIZE = 16


@define(eq=False)
class Paged:
    """Requests and their keys and values.

    Attributes:
        keys, values: [num_blocks, BLOCK_SIZE, kv_heads, head_dim], random numbers.
        tables: [rows, columns] int32; unused entries are -1.
        rows, lengths: [R] int32.
    """

    keys: torch.Tensor
    values: torch.Tensor
    tables: torch.Tensor
    rows: torch.Tensor
    lengths: torch.Tensor

    def given(self) -> dict[str, torch.Tensor]:
        """What every attention kernel takes by keyword."""
        return {"lengths": self.lengths, "tables": self.tables, "rows": self.rows}

    @property
    def num_bytes(self) -> int:
        """Of the keys and values that attention has to read."""
        of_token = self.keys[0, 0].nbytes + self.values[0, 0].nbytes
        return int(self.lengths.sum()) * of_token


def scattered(
    place: Place,
    lengths: Sequence[int],
    *,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    poisoned: bool = False,
) -> Paged:
    """Caches of requests of these lengths.

    Args:
        poisoned: NaN wherever no request has a token, so that a read there shows.
    """
    counts = [math.ceil(length / BLOCK_SIZE) for length in lengths]
    order = torch.randperm(sum(counts)) + 1  # block 0 is never handed out
    shape = (sum(counts) + 1, BLOCK_SIZE, kv_heads, head_dim)
    keys, values = (torch.randn(shape, dtype=dtype, device=place.device) for _ in range(2))
    tables = torch.full((len(lengths) + 2, max([1, *counts]) + 1), -1, dtype=torch.int32)
    rows = torch.randperm(len(tables))[: len(lengths)]
    starts = [sum(counts[:index]) for index in range(len(counts))]
    for row, start, count in zip(rows.tolist(), starts, counts, strict=True):
        tables[row, :count] = order[start : start + count]
    if poisoned:
        for start, count, length in zip(starts, counts, lengths, strict=True):
            for cache in (keys, values):
                cache[0] = math.nan
                if length % BLOCK_SIZE:
                    cache[order[start + count - 1], length % BLOCK_SIZE :] = math.nan
    sent = (tables, rows.int(), torch.tensor(lengths, dtype=torch.int32))
    return Paged(keys, values, *(tensor.to(place.device) for tensor in sent))


def noise(place: Place, *shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    """Random numbers."""
    return (torch.randn(shape, device=place.device) * scale).to(dtype)


def as_floats(given: dict[str, Any]) -> dict[str, Any]:
    """The same arguments with every floating tensor in fp32, for a reference."""
    return {
        name: value.float()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in given.items()
    }
