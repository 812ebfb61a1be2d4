"""RequestStates: what a runner remembers of each request, kept from `SchedulerOutput` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from attrs import define, field

from framework import RunnerError
from framework.ngram import propose_ngram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework import NewRequestData, SamplingParams, SchedulerOutput


@define(eq=False)
class RequestState:
    """One request on the runner's side.

    Attributes:
        token_ids: prompt and sampled tokens; runs ahead of the scheduler's in async mode.
        blocks: its block table.
        num_computed: tokens whose KV is in place.
        proposed: drafts of the runner's own for the next step.
        seed: of its random stream.
    """

    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    blocks: list[int]
    params: SamplingParams
    num_computed: int
    seed: int
    stop_token_ids: tuple[int, ...] = ()
    proposed: list[int] = field(factory=list)

    def append(self, tokens: Sequence[int]) -> None:
        """What a step gave: accepted drafts, whose KV is in place, and one token more."""
        self.num_computed += len(tokens) - 1
        self.token_ids += tokens


@define(eq=False)
class ScheduledRow:
    """A request's part of one step.

    Attributes:
        tokens: input tokens, drafts last.
        start: position of the first of them.
        num_drafts: drafts among them.
        samples: whether the step reaches the request's last known token.
    """

    state: RequestState
    tokens: list[int]
    start: int
    num_drafts: int
    samples: bool


def remember(
    output: SchedulerOutput,
    rows: Sequence[ScheduledRow],
    sampled: Sequence[Sequence[int]],
    *,
    proposes: bool,
) -> None:
    """Append what a step gave.

    Args:
        output, rows: the step.
        sampled: tokens of each row.
        proposes: look up drafts for the next step; in async mode nobody else can.
    """
    for row, tokens in zip(rows, sampled, strict=True):
        if not tokens:
            continue
        state = row.state
        state.append(tokens)
        if proposes:
            wanted = output.num_drafts.get(state.request_id, 0)
            state.proposed = propose_ngram(state.token_ids, wanted)


@define(eq=False)
class RequestStates:
    """All requests a runner knows.

    Args:
        seed: seed of requests that bring none.
    """

    seed: int = 0
    _states: dict[str, RequestState] = field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._states)

    def apply(self, output: SchedulerOutput) -> list[ScheduledRow]:
        """Bring the states up to date; returns the step's rows in batch order.

        Raises:
            RunnerError: the plan speaks of a request that was never announced.
        """
        for request_id in output.finished_req_ids:
            self._states.pop(request_id, None)
        for data in output.scheduled_new_reqs:
            self._states[data.request_id] = self._new(data)
        expected = self._update_cached(output)
        for data in output.scheduled_new_reqs:
            expected[data.request_id] = (data.num_computed_tokens, len(data.prompt_token_ids))
        return [
            self._row(output, request_id, count, *expected[request_id])
            for request_id, count in output.num_scheduled_tokens.items()
        ]

    def _new(self, data: NewRequestData) -> RequestState:
        params = data.sampling_params
        stops = () if params.ignore_eos else tuple(data.eos_token_ids)
        seed = params.seed
        if seed is None:
            seed = crc32(data.request_id.encode(), self.seed)
        return RequestState(
            data.request_id,
            list(data.prompt_token_ids),
            len(data.prompt_token_ids),
            list(data.block_ids),
            params,
            data.num_computed_tokens,
            seed,
            stops + params.stop_token_ids,
        )

    def _update_cached(self, output: SchedulerOutput) -> dict[str, tuple[int, int]]:
        cached = output.scheduled_cached_reqs
        expected: dict[str, tuple[int, int]] = {}
        for request_id, computed, num_output in zip(
            cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
        ):
            state = self._states.get(request_id)
            if state is None:
                raise RunnerError(
                    f"step {output.step}: request {request_id!r} is scheduled as known, but this "
                    "runner was never told of it"
                )
            blocks = cached.new_block_ids.get(request_id)
            if request_id in cached.resumed_req_ids:
                state.token_ids = list(cached.all_token_ids[request_id])
                state.blocks = list(blocks or ())
                state.num_computed = computed
                state.proposed = []
            elif blocks:
                state.blocks += blocks
            expected[request_id] = (computed, state.num_prompt_tokens + num_output)
        return expected

    def _row(
        self, output: SchedulerOutput, request_id: str, count: int, computed: int, num_tokens: int
    ) -> ScheduledRow:
        """Where the plan counts on drafts that were rejected meanwhile, the row starts earlier."""
        state = self._states[request_id]
        drafts = output.scheduled_spec_decode_tokens.get(request_id, [])
        num_sure = count - len(drafts)
        start = min(computed, state.num_computed)
        known = [token for token in drafts if token >= 0] or state.proposed[: len(drafts)]
        state.proposed = []
        tokens = state.token_ids[start : start + num_sure]
        if len(tokens) != num_sure:
            raise RunnerError(
                f"step {output.step}: request {request_id!r} is given {num_sure} tokens from "
                f"position {start}, but it has {len(state.token_ids)}"
            )
        samples = computed + num_sure >= num_tokens
        if not samples:
            known = []
        state.num_computed = start + num_sure
        return ScheduledRow(state, tokens + known, start, len(known), samples)
