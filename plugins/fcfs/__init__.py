"""First come, first served: vLLM V1's default order.

Requests are served in the order of `add_request`, whatever their `arrival_time` says. When blocks
run out the last running request gives way; a victim goes to the head of the queue, so that of
several the running order is kept. Hooks: order_waiting, pick_preempt_victim.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from attrs import define, field

from framework import Request, Status, hookimpl


@define(eq=False)
class Fcfs:
    """First come, first served (Orca, OSDI'22; vLLM V1)."""

    _ahead: count[int] = field(factory=lambda: count(-1, -1), init=False)

    @hookimpl
    def order_waiting(self, request: Request) -> int:
        """Everyone ties, so order of entry decides; a victim goes before all others."""
        return next(self._ahead) if request.status is Status.PREEMPTED else 0

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request:
        """The last admitted."""
        return candidates[-1]
