"""FlatBatch: one step as flat arrays, all requests behind one another without padding."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from attrs import define

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.common.state import ScheduledRow


@define(eq=False)
class FlatBatch:
    """T tokens of R requests.

    Attributes:
        rows: the requests, in batch order.
        input_ids, positions: [T], int64.
        slots: [T], int64; slot = block * block_size + offset, where the token's KV is written.
        starts: R + 1 offsets of the requests in the flat arrays.
        block_tables: R lists of block ids.
        logits_rows: [L], int64: the last sure token and the drafts of each request that samples.
    """

    rows: Sequence[ScheduledRow]
    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    starts: list[int]
    block_tables: list[torch.Tensor]
    logits_rows: torch.Tensor


def flatten(rows: Sequence[ScheduledRow], block_size: int) -> FlatBatch:
    """Lay the rows of a step out flat."""
    lengths = [len(row.tokens) for row in rows]
    starts = [0, *accumulate(lengths)]
    tokens: list[int] = []
    positions, slots, tables, logits = [], [], [], []
    for row, length, first in zip(rows, lengths, starts, strict=False):
        tokens += row.tokens
        table = torch.tensor(row.state.blocks, dtype=torch.int64)
        position = torch.arange(row.start, row.start + length)
        positions.append(position)
        slots.append(table[position // block_size] * block_size + position % block_size)
        tables.append(table)
        if row.samples:
            end = first + length
            logits.append(torch.arange(end - row.num_drafts - 1, end))
    empty = torch.empty(0, dtype=torch.int64)
    return FlatBatch(
        rows,
        torch.tensor(tokens, dtype=torch.int64),
        torch.cat(positions) if positions else empty,
        torch.cat(slots) if slots else empty,
        starts,
        tables,
        torch.cat(logits) if logits else empty,
    )
