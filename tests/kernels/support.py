"""Guarded buffers, scattered paged caches, and closeness, for the kernel tests.

The interpreter checks no bounds: a store outside a buffer corrupts the heap. So every buffer lies
inside a larger one whose margins must be untouched afterwards, and what no request may read is NaN.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import torch
from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Sequence

MARGIN = 64
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3}


@define(eq=False)
class Guards:
    """Makes buffers with margins; `check` fails if anything wrote into a margin."""

    device: str
    _whole: list[tuple[torch.Tensor, torch.Tensor]] = field(factory=list, init=False)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values, contiguous, between two margins."""
        size = tensor.numel()
        fill = float("nan") if tensor.is_floating_point() else 85
        whole = torch.full((size + 2 * MARGIN,), fill, dtype=tensor.dtype, device=self.device)
        whole[MARGIN : MARGIN + size] = tensor.reshape(-1).to(self.device)
        self._whole.append((whole, whole.clone()))
        return whole[MARGIN : MARGIN + size].view(tensor.shape)

    def empty(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """For results: NaN, or 85 for integers, until something is written."""
        fill = float("nan") if dtype.is_floating_point else 85
        return self.put(torch.full(shape, fill, dtype=dtype))

    def check(self) -> None:
        """Every margin holds what it held."""
        for whole, before in self._whole:
            for part in (slice(0, MARGIN), slice(len(whole) - MARGIN, len(whole))):
                assert torch.equal(whole[part].nan_to_num(7), before[part].nan_to_num(7))


@define(eq=False)
class Paged:
    """A scattered cache: keys and values, block tables, which table row each request has.

    Attributes:
        keys, values: [num_blocks, block_size, kv_heads, head_dim]; NaN wherever no request of
            `lengths` has a token, so a read past a length or of a foreign block shows.
        tables: [rows, columns] int32, more rows than requests; unused entries are -1.
        rows: [R] int32.
        lengths: [R] int32.
    """

    keys: torch.Tensor
    values: torch.Tensor
    tables: torch.Tensor
    rows: torch.Tensor
    lengths: torch.Tensor


def paged(
    guards: Guards,
    lengths: Sequence[int],
    *,
    kv_heads: int,
    head_dim: int,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    num_shared: int = 0,
    seed: int = 0,
) -> Paged:
    """Random keys and values of requests of these lengths, blocks in random order.

    Args:
        num_shared: leading blocks that all requests of at least that length have in common.
    """
    draw = random.Random(seed)
    noise = torch.Generator().manual_seed(seed)
    counts = [math.ceil(length / block_size) for length in lengths]
    ids = list(range(1, 1 + sum(counts) + 3))
    draw.shuffle(ids)
    shared = [ids.pop() for _ in range(num_shared)]
    shape = (len(ids) + num_shared + 1, block_size, kv_heads, head_dim)
    keys, values = (torch.full(shape, float("nan"), dtype=dtype) for _ in range(2))
    tables = torch.full((len(lengths) + 2, max([1, *counts]) + 1), -1, dtype=torch.int32)
    rows = torch.tensor(draw.sample(range(len(tables)), len(lengths)), dtype=torch.int32)
    for row, length, count in zip(rows.tolist(), lengths, counts, strict=True):
        common = shared if count >= num_shared else []
        blocks = common + [ids.pop() for _ in range(count - len(common))]
        tables[row, :count] = torch.tensor(blocks, dtype=torch.int32)
        for index, block in enumerate(blocks):
            filled = min(block_size, length - index * block_size)
            for cache in (keys, values):
                own = torch.randn(filled, kv_heads, head_dim, generator=noise)
                fresh = cache[block, :filled].isnan()
                cache[block, :filled] = torch.where(fresh, own.to(dtype), cache[block, :filled])
    return Paged(
        guards.put(keys),
        guards.put(values),
        guards.put(tables),
        guards.put(rows),
        guards.put(torch.tensor(lengths, dtype=torch.int32)),
    )


def assert_close(got: torch.Tensor, expected: torch.Tensor, *, factor: float = 1.0) -> None:
    """Within the tolerance of the dtype, relative to the largest expected value."""
    assert got.shape == expected.shape
    assert not got.isnan().any(), "a value that nothing wrote, or read from where nothing is"
    tolerance = TOLERANCE[got.dtype] * factor
    scale = max(1.0, float(expected.float().abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(
        got.float(), expected.float(), rtol=tolerance, atol=tolerance * scale
    )
