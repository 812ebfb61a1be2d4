"""The sampling parameters of running requests, a record a row, ready to be sent.

Gathering records by row is what makes a step of hundreds of requests cheap on the host.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.common.state import RequestState, ScheduledRow

RECORD = np.dtype(
    [
        ("seeds", np.int64),
        ("temperature", np.float32),
        ("top_k", np.int32),
        ("top_p", np.float32),
        ("min_p", np.float32),
        ("repetition", np.float32),
        ("presence", np.float32),
        ("frequency", np.float32),
        ("prompt_lengths", np.int32),
        ("min_tokens", np.int32),
    ]
)
DRAWING = ("seeds", "temperature", "top_k", "top_p", "min_p")
PENALTIES = ("repetition", "presence", "frequency", "prompt_lengths")


class Parameters:
    """Records of up to `num_rows` requests."""

    def __init__(self, num_rows: int) -> None:
        self._records = np.zeros(num_rows, dtype=RECORD)
        self._owners: list[RequestState | None] = [None] * num_rows

    def of(self, rows: Sequence[ScheduledRow], table_rows: np.ndarray) -> np.ndarray:
        """[L] records, one for each position of the rows that sample."""
        for item, row in zip(rows, table_rows.tolist(), strict=True):
            if self._owners[row] is not item.state:
                self._owners[row] = item.state
                self._records[row] = _record(item.state)
        return np.repeat(self._records[table_rows], num_positions(rows))


def num_positions(rows: Sequence[ScheduledRow]) -> list[int]:
    """Logits rows of each request: one and its drafts, or none."""
    return [row.num_drafts + 1 if row.samples else 0 for row in rows]


def positions(rows: Sequence[ScheduledRow]) -> np.ndarray:
    """[L] int64: output tokens before each position, assumed drafts included."""
    outputs = ((len(row.state.token_ids) - row.state.num_prompt_tokens, row) for row in rows)
    return np.fromiter(
        chain.from_iterable(
            range(first, first + row.num_drafts + 1) for first, row in outputs if row.samples
        ),
        dtype=np.int64,
    )


def _record(state: RequestState) -> tuple[float, ...]:
    params = state.params
    return (
        int(np.uint64(state.seed % 2**64).astype(np.int64)),
        params.temperature,
        min(params.top_k, 2**31 - 1),
        params.top_p,
        params.min_p,
        params.repetition_penalty,
        params.presence_penalty,
        params.frequency_penalty,
        state.num_prompt_tokens,
        min(params.min_tokens, 2**31 - 1),
    )
