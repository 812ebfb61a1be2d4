"""BlockTables: the block table of every running request on the device, sent piece by piece.

A request has a row from when it is first scheduled until it ends or loses its place. Of a table
only what is new since the last step is sent; after a resume that is all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from framework import RunnerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework import SchedulerConfig, SchedulerOutput
    from runners.common.state import ScheduledRow


class BlockTables:
    """Rows of requests in a [num_rows, num_columns] table of block ids.

    Args:
        num_rows: most running requests.
        num_columns: most blocks of one request.
        device: where the table is.
    """

    def __init__(self, num_rows: int, num_columns: int, device: torch.device) -> None:
        self.ids = torch.zeros(num_rows, num_columns, dtype=torch.int32, device=device)
        self._free = list(range(num_rows - 1, -1, -1))
        self._rows: dict[str, int] = {}
        self._sent: dict[str, int] = {}

    @classmethod
    def for_config(cls, config: SchedulerConfig, device: torch.device) -> BlockTables:
        """As many as the limits allow; drafts may reach past the model length."""
        longest = config.max_model_len + 2 * (config.num_spec_tokens + 1)
        return cls(config.max_num_seqs, -(-longest // config.block_size), device)

    def forget(self, output: SchedulerOutput) -> None:
        """Take back the rows of who ended or lost its place."""
        for request_id in (*output.finished_req_ids, *output.preempted_req_ids):
            row = self._rows.pop(request_id, None)
            if row is not None:
                self._free.append(row)
                del self._sent[request_id]
        for request_id in output.scheduled_cached_reqs.resumed_req_ids:
            if request_id in self._rows:
                self._sent[request_id] = 0

    def rows(self, scheduled: Sequence[ScheduledRow]) -> np.ndarray:
        """[R] int32, the row of each request.

        Raises:
            RunnerError: more requests run than there are rows.
        """
        found = np.empty(len(scheduled), dtype=np.int32)
        for index, item in enumerate(scheduled):
            request_id = item.state.request_id
            row = self._rows.get(request_id)
            if row is None:
                if not self._free:
                    raise RunnerError(
                        f"request {request_id!r} finds no row: {len(self._rows)} requests run, "
                        "as many as max_num_seqs"
                    )
                row = self._rows[request_id] = self._free.pop()
                self._sent[request_id] = 0
            found[index] = row
        return found

    def changes(self, scheduled: Sequence[ScheduledRow]) -> tuple[np.ndarray, np.ndarray]:
        """What the device does not have yet: [n] int64 places in the flat table, [n] int32 ids.

        Raises:
            RunnerError: a request has more blocks than the table has columns.
        """
        columns = self.ids.shape[1]
        places: list[int] = []
        ids: list[int] = []
        for item in scheduled:
            state = item.state
            sent, blocks = self._sent[state.request_id], state.blocks
            if sent == len(blocks):
                continue
            if len(blocks) > columns:
                raise RunnerError(
                    f"request {state.request_id!r} has {len(blocks)} blocks, the table has room "
                    f"for {columns}"
                )
            first = self._rows[state.request_id] * columns
            places += range(first + sent, first + len(blocks))
            ids += blocks[sent:]
            self._sent[state.request_id] = len(blocks)
        return np.array(places, dtype=np.int64), np.array(ids, dtype=np.int32)

    def apply(self, places: torch.Tensor, ids: torch.Tensor) -> None:
        """Write changes that have arrived on the device."""
        self.ids.view(-1)[places] = ids
