"""KnownTokens: prompt and output of the requests whose penalties need them, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runners.common.state import RequestState, ScheduledRow

UNKNOWN = -1
"""A token that was sampled and is not on the host yet."""


class KnownTokens:
    """Rows of tokens, made when the first request with penalties comes.

    Args:
        num_rows: most running requests.
        longest: most tokens of one.
        device: where they are.
    """

    def __init__(self, num_rows: int, longest: int, device: torch.device) -> None:
        self._shape = (num_rows, longest)
        self._device = device
        self._owners: list[RequestState | None] = [None] * num_rows
        self._lists: list[list[int] | None] = [None] * num_rows
        self._sent = [0] * num_rows
        self.tokens: torch.Tensor | None = None

    def fields(self, rows: Sequence[ScheduledRow], table_rows: np.ndarray) -> dict[str, np.ndarray]:
        """What the device does not have yet of these rows.

        The newest token may still be unknown here: its place is sent, and its row of newest ones.
        """
        places: list[int] = []
        ids: list[int] = []
        late_places, late_rows = [], []
        for item, row in zip(rows, table_rows.tolist(), strict=True):
            known, first = item.state.token_ids, row * self._shape[1]
            if self._owners[row] is not item.state or self._lists[row] is not known:
                self._owners[row], self._lists[row], self._sent[row] = item.state, known, 0
            end = len(known)
            if known[-1] == UNKNOWN:
                end -= 1
                late_places.append(first + end)
                late_rows.append(row)
            places += range(first + self._sent[row], first + end)
            ids += known[self._sent[row] : end]
            self._sent[row] = end
        return {
            "known_places": np.array(places, dtype=np.int64),
            "late_places": np.array(late_places, dtype=np.int64),
            "late_rows": np.array(late_rows, dtype=np.int64),
            "known_ids": np.array(ids, dtype=np.int32),
        }

    def apply(self, fields: Mapping[str, torch.Tensor], last_tokens: torch.Tensor) -> torch.Tensor:
        """Write what has arrived; returns [rows, longest] int32."""
        if self.tokens is None:
            self.tokens = torch.zeros(self._shape, dtype=torch.int32, device=self._device)
        flat = self.tokens.view(-1)
        flat[fields["known_places"]] = fields["known_ids"]
        if len(fields["late_places"]):
            flat[fields["late_places"]] = last_tokens[fields["late_rows"]].int()
        return self.tokens
