"""StepInputs: what the model and the attention kernels read of one step, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import define

if TYPE_CHECKING:
    from runners.common.batch import FlatBatch


@define(eq=False)
class StepInputs:
    """T tokens of R requests; padding has slot -1 and length 0.

    Attributes:
        input_ids, positions: [T], int64.
        slots: [T], int32.
        starts: [R + 1], int32.
        lengths, table_rows: [R], int32.
        tables: [rows, columns], int32.
        is_decode: every request has exactly one token.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    table_rows: torch.Tensor
    tables: torch.Tensor
    is_decode: bool


def fields_of(batch: FlatBatch, table_rows: np.ndarray) -> dict[str, np.ndarray]:
    """The host side of StepInputs, by name; tables are kept on the device."""
    return {
        "input_ids": batch.input_ids,
        "positions": batch.positions,
        "slots": batch.slots.astype(np.int32),
        "starts": batch.starts,
        "lengths": batch.lengths,
        "table_rows": table_rows,
    }


def padded(fields: dict[str, np.ndarray], num_requests: int) -> dict[str, np.ndarray]:
    """The same for so many requests of one token each: what is added does nothing."""
    missing = num_requests - len(fields["lengths"])
    end = fields["starts"][-1]
    fill = {"slots": -1}
    longer = {
        name: np.concatenate([array, np.full(missing, fill.get(name, 0), dtype=array.dtype)])
        for name, array in fields.items()
        if name != "starts"
    }
    more = np.arange(end + 1, end + missing + 1, dtype=np.int32)
    return {**longer, "starts": np.concatenate([fields["starts"], more])}


def standalone(batch: FlatBatch, device: torch.device) -> StepInputs:
    """Inputs of a batch with a table of its own, for checks of a model."""
    width = max(len(row.state.blocks) for row in batch.rows)
    tables = torch.zeros(len(batch.rows), width, dtype=torch.int32)
    for index, row in enumerate(batch.rows):
        tables[index, : len(row.state.blocks)] = torch.tensor(row.state.blocks)
    fields = fields_of(batch, np.arange(len(batch.rows), dtype=np.int32))
    moved = {name: torch.from_numpy(array).to(device) for name, array in fields.items()}
    is_decode = len(batch.input_ids) == len(batch.rows)
    return StepInputs(**moved, tables=tables.to(device), is_decode=is_decode)
