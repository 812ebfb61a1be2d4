"""Feed: brings a step to the device, in one copy, and knows what is there already.

Block tables stay on the device and get only what is new. A token that was sampled in a step still
running is taken from the device too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import define

from runners.triton.graphs import graph_sizes, size_for
from runners.triton.inputs import StepInputs, fields_of, padded
from runners.triton.staging import Staging
from runners.triton.tables import BlockTables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework import SchedulerConfig, SchedulerOutput
    from runners.common.batch import FlatBatch
    from runners.common.state import ScheduledRow

BYTES_PER_REQUEST = 512
BYTES_PER_TOKEN = 32
NO_ROWS = np.zeros(1, dtype=np.int64)


@define(eq=False)
class Step:
    """A step on the device.

    Attributes:
        inputs: of the model, padded to `size` requests if there is one.
        size: of the captured graph that runs it, or None: it runs as it is.
        table_rows: [R] int64, without padding.
        logits_rows: [L] int64, as in the batch; row 0 where no request samples.
        fields: what else was sent.
    """

    inputs: StepInputs
    size: int | None
    table_rows: torch.Tensor
    logits_rows: torch.Tensor
    fields: Mapping[str, torch.Tensor]


class Feed:
    """The way of one runner's steps to its device.

    Args:
        config: the scheduler's limits.
        device: where they go.
    """

    def __init__(self, config: SchedulerConfig, device: torch.device) -> None:
        self.tables = BlockTables.for_config(config, device)
        self.last_tokens = torch.zeros(config.max_num_seqs, dtype=torch.int64, device=device)
        """The newest token of each row of the tables."""
        self._sizes = graph_sizes(config.max_num_seqs)
        most = self._sizes[-1]
        places = ("input_ids", "positions", "slots", "lengths", "table_rows")
        self._room = {**dict.fromkeys(places, most), "starts": most + 1}
        size = most * BYTES_PER_REQUEST + config.max_num_batched_tokens * BYTES_PER_TOKEN
        self._decodes = Staging(device, size, is_fixed=True)
        self._others = Staging(device, size)

    def forget(self, output: SchedulerOutput) -> None:
        """Take back what requests hold that ended or lost their place."""
        self.tables.forget(output)

    def rows_of(self, rows: Sequence[ScheduledRow]) -> np.ndarray:
        """[R] int32, the row of each request on the device."""
        return self.tables.rows(rows)

    def send(
        self, batch: FlatBatch, table_rows: np.ndarray, more: Mapping[str, np.ndarray]
    ) -> Step:
        """One copy: inputs, news of the tables, and `more`."""
        unknown = np.flatnonzero(batch.input_ids < 0)
        owners = np.searchsorted(batch.starts, unknown, side="right") - 1
        places, ids = self.tables.changes(batch.rows)
        others = {
            "changed_places": places,
            "unknown": unknown.astype(np.int64),
            "unknown_rows": table_rows[owners].astype(np.int64),
            "own_rows": table_rows.astype(np.int64),
            "logits_rows": batch.logits_rows if len(batch.logits_rows) else NO_ROWS,
            "changed_ids": ids,
            **more,
        }
        inputs = fields_of(batch, table_rows)
        sent, size = self._upload(inputs, others, batch)
        self.tables.apply(sent["changed_places"], sent["changed_ids"])
        if len(unknown):
            sent["input_ids"][sent["unknown"]] = self.last_tokens[sent["unknown_rows"]]
        step_inputs = StepInputs(
            **{name: sent[name] for name in inputs},
            tables=self.tables.ids,
            is_decode=size is not None,
        )
        return Step(step_inputs, size, sent["own_rows"], sent["logits_rows"], sent)

    def _upload(
        self, inputs: dict[str, np.ndarray], others: dict[str, np.ndarray], batch: FlatBatch
    ) -> tuple[dict[str, torch.Tensor], int | None]:
        """Padded to a graph's size, its inputs at their fixed places, if it can be; else as is."""
        num_requests = len(batch.rows)
        size = size_for(self._sizes, num_requests)
        if size is not None and len(batch.input_ids) == num_requests:
            fields = {**padded(inputs, size), **others}
            if self._decodes.holds(fields, self._room):
                return self._decodes.upload(fields, self._room), size
        return self._others.upload({**inputs, **others}), None

    def keep_last(self, step: Step, tokens: torch.Tensor) -> None:
        """Remember the newest token, [R], of each request of a step."""
        self.last_tokens[step.table_rows] = tokens.long()
