"""Sampling and draft verification, over all rows of a step at once.

A row is one position whose next token is drawn: the last sure token of a request, or a draft. The
random number of a position is Philox's of the request's seed and the position alone (the output
tokens before it), so neither preemption, nor batching, nor speculation changes what a seed gives.
In this order: a grammar, minimum length, penalties, temperature, top-k, top-p, min-p (ties at a
threshold are all kept), then the inverse of the cumulative distribution in vocabulary order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from attrs import define

from framework import TokenLogprobs
from runners.common.drawing import draw, floors, weights
from runners.common.philox import uniforms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from framework import SamplingParams
    from runners.common.state import RequestState, ScheduledRow


@define(eq=False)
class Row:
    """One position: the request, the drafts assumed before it, and the draft it verifies."""

    state: RequestState
    drafts_before: list[int]
    draft: int | None

    @property
    def params(self) -> SamplingParams:
        """The request's sampling parameters."""
        return self.state.params

    @property
    def num_outputs(self) -> int:
        """Output tokens before this position, assumed drafts included."""
        state = self.state
        return len(state.token_ids) - state.num_prompt_tokens + len(self.drafts_before)


def rows_of(scheduled: Sequence[ScheduledRow]) -> list[Row]:
    """The logits rows of a step, in the order of `FlatBatch.logits_rows`."""
    rows = []
    for item in scheduled:
        if not item.samples:
            continue
        drafts = item.tokens[len(item.tokens) - item.num_drafts :]
        for index in range(item.num_drafts + 1):
            draft = drafts[index] if index < len(drafts) else None
            rows.append(Row(item.state, drafts[:index], draft))
    return rows


def sample(
    scheduled: Sequence[ScheduledRow],
    logits: torch.Tensor,
    *,
    adjust: Callable[[torch.Tensor], None] | None = None,
) -> tuple[list[list[int]], dict[str, list[TokenLogprobs]]]:
    """Draw the step's tokens.

    Args:
        scheduled: the step's requests, in batch order.
        logits: [L, V], a row for each of `rows_of(scheduled)`; may be changed in place.
        adjust: changes them in place before anything is drawn, such as a grammar; the
            log-probabilities are of what it was given.

    Returns:
        One list a request (accepted drafts and one token more; empty where it does not sample),
        and log-probabilities of the kept tokens where asked for.
    """
    rows = rows_of(scheduled)
    if not rows:
        return [[] for _ in scheduled], {}
    wanted = {index: row for index, row in enumerate(rows) if row.params.logprobs is not None}
    raw = torch.log_softmax(logits[list(wanted)].float(), dim=-1) if wanted else None
    if adjust is not None:
        adjust(logits)
    chosen, accepted = _choose(rows, logits)
    sampled: list[list[int]] = []
    first = 0
    kept: dict[str, list[TokenLogprobs]] = {}
    place = {index: position for position, index in enumerate(wanted)}
    for item in scheduled:
        if not item.samples:
            sampled.append([])
            continue
        count = 0
        while count < item.num_drafts and accepted[first + count]:
            count += 1
        tokens = [*item.tokens[len(item.tokens) - item.num_drafts :][:count], chosen[first + count]]
        if raw is not None and item.state.params.logprobs is not None:
            indices = [place[first + offset] for offset in range(count + 1)]
            top = item.state.params.logprobs
            kept[item.state.request_id] = [
                _logprobs(raw[index], token, top)
                for index, token in zip(indices, tokens, strict=True)
            ]
        sampled.append(tokens)
        first += item.num_drafts + 1
    return sampled, kept


def _choose(rows: Sequence[Row], logits: torch.Tensor) -> tuple[list[int], list[bool]]:
    """For each row the token drawn, and whether its draft is accepted: where it is that token.

    The drafter is certain of its drafts, so this is rejection sampling (Leviathan et al. and Chen
    et al., 2023): a draft x is kept with probability p(x), else the token has the distribution p
    without x, renormalised. And it is the token that would have been drawn without drafts.
    """
    _adjust(rows, logits)
    chosen: list[int] = logits.argmax(dim=-1).tolist()
    random_rows = [index for index, row in enumerate(rows) if row.params.temperature > 0]
    if random_rows:
        tokens = _draw([rows[index] for index in random_rows], logits[random_rows].float())
        for index, token in zip(random_rows, tokens.tolist(), strict=True):
            chosen[index] = token
    return chosen, [row.draft == token for row, token in zip(rows, chosen, strict=True)]


def _draw(rows: Sequence[Row], logits: torch.Tensor) -> torch.Tensor:
    """[N] tokens of rows of a temperature above 0."""
    params = [row.params for row in rows]
    temperature = torch.tensor([p.temperature for p in params], dtype=torch.float32)
    floor = floors(
        logits,
        temperature,
        torch.tensor([p.top_k for p in params]),
        torch.tensor([p.top_p for p in params], dtype=torch.float32),
        torch.tensor([p.min_p for p in params], dtype=torch.float32),
    )
    shares = uniforms([row.state.seed for row in rows], [row.num_outputs for row in rows])
    return draw(weights(logits, temperature, floor), torch.from_numpy(shares))


def _adjust(rows: Sequence[Row], logits: torch.Tensor) -> None:
    """Penalties and the minimum length, in place; most rows have neither."""
    for index, row in enumerate(rows):
        params = row.params
        if row.num_outputs < params.min_tokens:
            stops = [token for token in row.state.stop_token_ids if token < logits.shape[-1]]
            logits[index, stops] = -torch.inf
        if params.repetition_penalty != 1.0:
            seen = torch.tensor(sorted({*row.state.token_ids, *row.drafts_before}))
            values = logits[index, seen]
            penalty = params.repetition_penalty
            logits[index, seen] = torch.where(values > 0, values / penalty, values * penalty)
        if params.presence_penalty or params.frequency_penalty:
            outputs = row.state.token_ids[row.state.num_prompt_tokens :] + row.drafts_before
            if outputs:
                seen, counts = torch.unique(torch.tensor(outputs), return_counts=True)
                minus = params.presence_penalty + params.frequency_penalty * counts
                logits[index, seen] -= minus.to(logits.dtype)


def _logprobs(row: torch.Tensor, token: int, count: int) -> TokenLogprobs:
    """Of the model's own distribution, before temperature and filters."""
    own = row[token]
    rank = int((row > own).sum()) + 1
    values, tokens = row.topk(min(count, row.shape[-1]))
    return TokenLogprobs(float(own), rank, dict(zip(tokens.tolist(), values.tolist(), strict=True)))
