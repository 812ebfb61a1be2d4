"""Sampler: draws the tokens of a step on the device, by the rules of `runners.common.sampling`.

What a step needs beyond the plain draw (penalties, a bitmask, log-probabilities) is sent and run
only where a request of the step asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from runners.common.grammar import bitmask_rows
from runners.triton.drawn import Drawn, Logprobs
from runners.triton.kernels.bitmask import apply_bitmask
from runners.triton.kernels.logprobs import token_logprobs
from runners.triton.kernels.penalties import apply_penalties
from runners.triton.kernels.rejection import verify_drafts
from runners.triton.kernels.sample import sample_tokens
from runners.triton.kernels.stop_tokens import suppress_stop_tokens
from runners.triton.known import KnownTokens
from runners.triton.parameters import DRAWING, PENALTIES, Parameters, num_positions, positions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework import SchedulerConfig, SchedulerOutput
    from runners.common.state import ScheduledRow
    from runners.triton.feed import Step


class Sampler:
    """Sampling for one runner.

    Args:
        config: the scheduler's limits.
        device: where logits are.
    """

    def __init__(self, config: SchedulerConfig, device: torch.device) -> None:
        self._device = device
        self._width = config.num_spec_tokens
        self._parameters = Parameters(config.max_num_seqs)
        longest = config.max_model_len + 2 * (config.num_spec_tokens + 1)
        self._known = KnownTokens(config.max_num_seqs, longest, device)

    def fields(
        self, output: SchedulerOutput, rows: Sequence[ScheduledRow], table_rows: np.ndarray
    ) -> dict[str, np.ndarray]:
        """What `draw` needs from the host."""
        records = self._parameters.of(rows, table_rows)
        fields = {name: np.ascontiguousarray(records[name]) for name in DRAWING}
        fields["token_positions"] = positions(rows)
        fields |= self._drafts(rows)
        if output.grammar_bitmask is not None:
            fields["bitmask_rows"] = np.array(bitmask_rows(output, rows), dtype=np.int32)
        return {
            **fields,
            **self._logprob_fields(rows),
            **self._penalty_fields(rows, table_rows, records),
            **_stop_fields(rows, fields["token_positions"], records),
        }

    def draw(
        self,
        output: SchedulerOutput,
        rows: Sequence[ScheduledRow],
        logits: torch.Tensor,
        step: Step,
        last_tokens: torch.Tensor,
    ) -> Drawn:
        """Draw and verify.

        Args:
            output, rows: the step.
            logits: [L, V], a row for each position; changed in place.
            step: with the arrived `fields`.
            last_tokens: the newest token of each row on the device.
        """
        fields, shape = step.fields, (len(rows), self._width + 1)
        tokens = torch.full(shape, -1, dtype=torch.int32, device=self._device)
        counts = torch.zeros(len(rows), dtype=torch.int32, device=self._device)
        if not len(logits):
            return Drawn(rows, tokens, counts)
        wanted = fields.get("logprob_rows")
        raw = None if wanted is None else logits.index_select(0, wanted)
        self._adjust(output, logits, fields, last_tokens)
        drawn = torch.empty(len(logits), dtype=torch.int32, device=self._device)
        sample_tokens(
            logits,
            fields["temperature"],
            fields["top_k"],
            fields["top_p"],
            fields["min_p"],
            fields["seeds"],
            fields["token_positions"],
            drawn,
        )
        drafts = fields["drafts"].view(len(rows), self._width)
        verify_drafts(drawn, drafts, fields["num_drafts"], fields["first_rows"], tokens, counts)
        if raw is None or wanted is None:
            return Drawn(rows, tokens, counts)
        return Drawn(rows, tokens, counts, _logprobs(rows, raw, drawn.index_select(0, wanted)))

    def _adjust(
        self,
        output: SchedulerOutput,
        logits: torch.Tensor,
        fields: Mapping[str, torch.Tensor],
        last_tokens: torch.Tensor,
    ) -> None:
        """Grammar, minimum length, penalties."""
        if "bitmask_rows" in fields:
            mask = torch.as_tensor(output.grammar_bitmask)
            if self._device.type == "cuda":
                mask = mask.pin_memory().to(self._device, non_blocking=True)
            apply_bitmask(logits, mask, fields["bitmask_rows"])
        if "stops" in fields:
            stops = fields["stops"].view(len(logits), -1)
            suppress_stop_tokens(logits, stops.where(stops < logits.shape[-1], -1))
        if "row_of" in fields:
            apply_penalties(
                logits,
                self._known.apply(fields, last_tokens),
                row_of=fields["row_of"],
                lengths=fields["known_lengths"],
                prompt_lengths=fields["prompt_lengths"],
                drafts=fields["drafts_before"].view(len(logits), -1),
                num_drafts=fields["num_before"],
                repetition=fields["repetition"],
                presence=fields["presence"],
                frequency=fields["frequency"],
            )

    def _drafts(self, rows: Sequence[ScheduledRow]) -> dict[str, np.ndarray]:
        """[R, width] drafts, how many, and each request's first position; -1 = none."""
        counts = np.array(num_positions(rows), dtype=np.int32)
        ends = np.cumsum(counts, dtype=np.int32)
        drafts = np.full((len(rows), self._width), -1, dtype=np.int32)
        for index, row in enumerate(rows):
            if row.num_drafts:
                drafts[index, : row.num_drafts] = row.tokens[-row.num_drafts :]
        return {
            "drafts": drafts.reshape(-1),
            "num_drafts": np.maximum(counts - 1, 0).astype(np.int32),
            "first_rows": np.where(counts > 0, ends - counts, -1).astype(np.int32),
        }

    def _logprob_fields(self, rows: Sequence[ScheduledRow]) -> dict[str, np.ndarray]:
        wanted = [row.state.params.logprobs is not None for row in rows]
        if not any(wanted):
            return {}
        asked = np.repeat(wanted, num_positions(rows))
        return {"logprob_rows": np.flatnonzero(asked).astype(np.int64)} if asked.any() else {}

    def _penalty_fields(
        self, rows: Sequence[ScheduledRow], table_rows: np.ndarray, records: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Known tokens and, for each position, whose they are; -1 = no penalty."""
        penalised = (records["repetition"] != 1) | (records["presence"] != 0)
        penalised |= records["frequency"] != 0
        if not penalised.any():
            return {}
        counts = num_positions(rows)
        owners = np.repeat(np.arange(len(rows)), counts)
        chosen = sorted(set(owners[penalised].tolist()))
        known = self._known.fields([rows[index] for index in chosen], table_rows[chosen])
        before = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
        drafts = np.full((len(owners), max(1, self._width)), -1, dtype=np.int32)
        for index, (owner, count) in enumerate(zip(owners, before, strict=True)):
            row = rows[owner]
            drafts[index, :count] = row.tokens[len(row.tokens) - row.num_drafts :][:count]
        lengths = np.array([len(row.state.token_ids) for row in rows], dtype=np.int32)
        return {
            **known,
            **{name: np.ascontiguousarray(records[name]) for name in PENALTIES},
            "row_of": np.where(penalised, table_rows[owners], -1).astype(np.int32),
            "known_lengths": lengths[owners],
            "drafts_before": drafts.reshape(-1),
            "num_before": before,
        }


def _stop_fields(
    rows: Sequence[ScheduledRow], places: np.ndarray, records: np.ndarray
) -> dict[str, np.ndarray]:
    """[L, most] stop tokens of the positions that are too early for them; -1 = none."""
    early = places < records["min_tokens"]
    if not early.any():
        return {}
    owners = np.repeat(np.arange(len(rows)), num_positions(rows))
    most = max([1, *(len(rows[owner].state.stop_token_ids) for owner in owners[early])])
    stops = np.full((len(owners), most), -1, dtype=np.int32)
    for index in np.flatnonzero(early):
        own = rows[owners[index]].state.stop_token_ids
        stops[index, : len(own)] = np.minimum(own, np.iinfo(np.int32).max)
    return {"stops": stops.reshape(-1)}


def _logprobs(rows: Sequence[ScheduledRow], raw: torch.Tensor, tokens: torch.Tensor) -> Logprobs:
    """Of the model's own distribution, before anything adjusts it."""
    own, ranks = token_logprobs(raw, tokens)
    most = max(row.state.params.logprobs or 0 for row in rows)
    top = raw.float().log_softmax(dim=-1).topk(min(most, raw.shape[-1]), dim=-1)
    return Logprobs(own, ranks, top.values, top.indices)
