"""Which row of a step's grammar bitmask each position obeys, and obeying it in torch.

Layout as xgrammar's (Dong et al., 2024): bit t % 32 of word t // 32 says that token t is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework import SchedulerOutput
    from runners.common.state import ScheduledRow

FREE = -1


def bitmask_rows(output: SchedulerOutput, rows: Sequence[ScheduledRow]) -> list[int]:
    """[L] a row of `output.grammar_bitmask` for each position; FREE = every token is allowed.

    A request's first position obeys the row that the plan names, its drafts the rows after it.
    """
    found: list[int] = []
    for row in rows:
        if row.samples:
            first = output.structured_output_request_ids.get(row.state.request_id)
            count = row.num_drafts + 1
            found += [FREE] * count if first is None else range(first, first + count)
    return found


def obey(logits: torch.Tensor, output: SchedulerOutput, rows: Sequence[ScheduledRow]) -> None:
    """Set what is not allowed to -inf, in place.

    Args:
        logits: [L, V].
        output: its bitmask is [N, ceil(V / 32)], int32.
        rows: the step's.
    """
    if output.grammar_bitmask is None:
        return
    mask = torch.as_tensor(output.grammar_bitmask)
    tokens = torch.arange(logits.shape[-1])
    for index, row in enumerate(bitmask_rows(output, rows)):
        if row != FREE:
            allowed = (mask[row][tokens // 32] >> (tokens % 32)) & 1
            logits[index, allowed == 0] = -torch.inf
