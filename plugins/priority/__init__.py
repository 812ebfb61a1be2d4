"""Strict priorities: vLLM V1's priority policy, with displacement as an option.

The queue is ordered by (priority, arrival_time, request id), lower first: a total order. When
blocks run out, the running request with the greatest (priority, arrival_time) gives way, the
earliest admitted on a tie. vLLM preempts only for memory, so an urgent arrival waits for a slot;
with `displace=True` it takes the place of a strictly less urgent running request, the latest of
equal ones, and only where enough of them exist to let it in.
Hooks: order_waiting, pick_preempt_victim, pick_displaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field
from attrs.validators import instance_of

from framework import Refusal, Request, StepView, hookimpl


def _rank(request: Request) -> tuple[int, float]:
    return (request.priority, request.arrival_time)


@define(eq=False)
class Priority:
    """Order by priority, then arrival.

    Args:
        displace: let a waiting request take the place of a less urgent running one.
    """

    may_starve = True

    displace: bool = field(default=False, validator=instance_of(bool))

    @hookimpl
    def order_waiting(self, request: Request) -> tuple[int, float, str]:
        """A total order, so equal requests never compare themselves."""
        return (request.priority, request.arrival_time, request.request_id)

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request:
        """The least urgent; ids do not count, the earliest admitted loses a tie."""
        return max(candidates, key=_rank)

    @hookimpl
    def pick_displaced(
        self, request: Request, candidates: Sequence[Request], step: StepView
    ) -> Request | None:
        """The least urgent one that is strictly less urgent than the waiting request."""
        if not self.displace:
            return None
        lesser = [other for other in candidates if other.priority > request.priority]
        is_short = step.refused.get(request) is Refusal.BLOCKS
        if not lesser or (is_short and not step.would_fit(request, lesser)):
            return None
        latest_first = reversed(lesser)
        return max(latest_first, key=_rank)
