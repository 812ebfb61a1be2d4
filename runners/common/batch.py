"""FlatBatch: one step as flat arrays, all requests behind one another without padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import define

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.common.state import ScheduledRow


@define(eq=False)
class FlatBatch:
    """T tokens of R requests, on the host.

    Attributes:
        rows: the requests, in batch order.
        input_ids, positions: [T], int64; a token that the host does not know yet is -1.
        slots: [T], int64; slot = block * block_size + offset, where the token's KV is written.
        starts: [R + 1], int32, offsets of the requests in the flat arrays.
        lengths: [R], int32, tokens of each request in the cache once this step's are written.
        logits_rows: [L], int64: the last sure token and the drafts of each request that samples.
    """

    rows: Sequence[ScheduledRow]
    input_ids: np.ndarray
    positions: np.ndarray
    slots: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    logits_rows: np.ndarray


def flatten(rows: Sequence[ScheduledRow], block_size: int) -> FlatBatch:
    """Lay the rows of a step out flat."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    lengths: list[int] = []
    logits: list[int] = []
    starts = [0]
    for row in rows:
        tokens += row.tokens
        first, last = row.start, row.start + len(row.tokens)
        blocks = row.state.blocks
        positions += range(first, last)
        slots += [
            blocks[position // block_size] * block_size + position % block_size
            for position in range(first, last)
        ]
        starts.append(len(tokens))
        lengths.append(last)
        if row.samples:
            logits += range(len(tokens) - row.num_drafts - 1, len(tokens))
    return FlatBatch(
        rows,
        np.array(tokens, dtype=np.int64),
        np.array(positions, dtype=np.int64),
        np.array(slots, dtype=np.int64),
        np.array(starts, dtype=np.int32),
        np.array(lengths, dtype=np.int32),
        np.array(logits, dtype=np.int64),
    )
