"""Plans and rows of requests, made by hand, for tests of a runner's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framework import SamplingParams
from framework.output import CachedRequestData, SchedulerOutput
from runners.common.state import RequestState, ScheduledRow

if TYPE_CHECKING:
    from collections.abc import Sequence

GREEDY = SamplingParams(temperature=0)


def plan(*, resumed: Sequence[str] = (), **fields: Any) -> SchedulerOutput:
    """A step's output; what is not said is empty."""
    cached = CachedRequestData(resumed_req_ids=set(resumed))
    return SchedulerOutput(0, {}, [], cached, 0, **fields)


def state(
    name: str,
    tokens: Sequence[int],
    blocks: Sequence[int] = (1,),
    *,
    num_prompt: int | None = None,
    params: SamplingParams = GREEDY,
    stops: tuple[int, ...] = (),
    seed: int = 0,
) -> RequestState:
    """A request of these tokens; all of them are the prompt unless said otherwise."""
    count = len(tokens) if num_prompt is None else num_prompt
    return RequestState(name, list(tokens), count, list(blocks), params, 0, seed, stops)


def newest(request: RequestState, drafts: Sequence[int] = ()) -> ScheduledRow:
    """The row that computes a request's last token, with drafts behind it."""
    start = len(request.token_ids) - 1
    return ScheduledRow(request, [request.token_ids[-1], *drafts], start, len(drafts), True)


def chunk(request: RequestState, start: int, end: int) -> ScheduledRow:
    """The row that computes tokens from one position up to another and samples nothing."""
    return ScheduledRow(request, request.token_ids[start:end], start, 0, False)
