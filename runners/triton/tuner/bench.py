"""Time the attention kernels with sizes to try, on shapes like those of a busy server.

Decode: 32 requests of 4096 keys. Prefill: 4 chunks of 2048 queries, each the second of its prompt.
The blocks of a request lie scattered over a large cache. Sizes with another result are refused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from attrs import define, field, frozen

from runners.triton.aot.attention import BLOCK_SIZE, KV_HEADS, LARGE_CACHE
from runners.triton.kernels.paged_attention import paged_attention
from runners.triton.kernels.split_decode import (
    Workspace,
    choose_num_splits,
    make_workspace,
    split_decode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from runners.triton.configs import AttentionConfig, Situation

TOLERANCE = 2e-2
"""Of results in 16 bits, relative to the largest; sizes change only the order of sums."""


@frozen
class Shape:
    """A batch: `queries` of each request stand at the end of its `length` keys."""

    requests: int
    queries: int
    length: int


SHAPES = {"prefill": Shape(4, 2048, 4096), "decode": Shape(32, 1, 4096)}


@frozen(eq=False)
class Batch:
    """Tensors of one situation, in the layout of the runner."""

    situation: Situation
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    tables: torch.Tensor
    rows: torch.Tensor
    num_splits: int
    workspace: Workspace


@define(eq=False)
class Bench:
    """Launches and times; it keeps the tensors and the first result of the latest situation.

    Attributes:
        measure: milliseconds of a launch.
        num_blocks: of the cache.
    """

    device: torch.device
    num_processors: int
    measure: Callable[[Callable[[], None]], float]
    num_blocks: int = LARGE_CACHE
    shapes: dict[str, Shape] = field(factory=SHAPES.copy)
    _batch: Batch | None = field(default=None, init=False)
    _expected: torch.Tensor | None = field(default=None, init=False)

    def time(self, situation: Situation, config: AttentionConfig) -> float:
        """Microseconds of a launch with these sizes.

        Raises:
            ValueError: another result than that of the situation's first sizes.
        """
        if self._batch is None or self._batch.situation != situation:
            self._batch = self._expected = None
            self._batch = self._make_batch(situation)
        batch = self._batch
        out = torch.empty(batch.query.shape, dtype=batch.query.dtype, device=self.device)
        launch = partial(self._launch, batch, out, config)
        launch()
        found = out.float()
        if self._expected is None:
            self._expected = found
        elif not (found - self._expected).abs().max() <= TOLERANCE * self._expected.abs().max():
            raise ValueError(f"config is {config}; its result is not that of other sizes")
        return 1000 * self.measure(launch)

    def _make_batch(self, situation: Situation) -> Batch:
        shape, dtype = self.shapes[situation.phase], getattr(torch, situation.dtype)
        heads, head_dim = KV_HEADS * situation.group, situation.head_dim
        floats = partial(torch.randn, dtype=dtype, device=self.device)
        integers = partial(torch.full, dtype=torch.int32, device=self.device)
        num_tokens = shape.requests * shape.queries
        columns = -(-shape.length // BLOCK_SIZE)
        blocks = torch.randperm(self.num_blocks, device=self.device)[: shape.requests * columns]
        cache = (self.num_blocks, BLOCK_SIZE, KV_HEADS, head_dim)
        num_splits = choose_num_splits(shape.requests, KV_HEADS, self.num_processors)
        every = torch.arange(shape.requests + 1, dtype=torch.int32, device=self.device)
        return Batch(
            situation,
            query=floats(num_tokens, heads + 2 * KV_HEADS, head_dim)[:, :heads],
            keys=floats(cache),
            values=floats(cache),
            starts=every * shape.queries,
            lengths=integers((shape.requests,), shape.length),
            tables=blocks.int().view(shape.requests, columns),
            rows=every[:-1].clone(),
            num_splits=num_splits,
            workspace=make_workspace(shape.requests, heads, head_dim, num_splits, self.device),
        )

    def _launch(self, batch: Batch, out: torch.Tensor, config: AttentionConfig) -> None:
        tensors = batch.query, batch.keys, batch.values, out
        scale = batch.situation.head_dim**-0.5
        if batch.situation.phase == "prefill":
            paged_attention(
                *tensors,
                starts=batch.starts,
                lengths=batch.lengths,
                tables=batch.tables,
                rows=batch.rows,
                scale=scale,
                config=config,
            )
        else:
            split_decode(
                *tensors,
                lengths=batch.lengths,
                tables=batch.tables,
                rows=batch.rows,
                scale=scale,
                num_splits=batch.num_splits,
                workspace=batch.workspace,
                config=config,
            )
