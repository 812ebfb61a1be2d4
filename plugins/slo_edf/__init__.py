"""Earliest deadline first, by the promised times to tokens.

A waiting request is due at its deadline: arrival plus the promised time to first token. A running
one is due when its next token is: the first token's deadline plus the promised time per token for
each token it gave. Who is due first is tried first, and gets its part of the step's budget first
where a prompt under way competes for it; who is due last gives way when blocks run out. Requests
without a promise are due last, in order of arrival. Below saturation this keeps more promises than
any order that does not look at them; beyond it everybody is late, one after the other.
Source: Liu and Layland, "Scheduling Algorithms for Multiprogramming", JACM 1973, on the deadlines
of SLO schedulers such as QLM (arXiv 2407.00047).
Hooks: order_waiting, order_running, pick_preempt_victim.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from attrs import define

from framework import Request, StepView, hookimpl


@define(eq=False)
class SloEdf:
    """Order by deadline."""

    may_starve = True

    @hookimpl
    def order_waiting(self, request: Request) -> tuple[float, float]:
        """By deadline, then arrival."""
        return _due(request), request.arrival_time

    @hookimpl
    def order_running(self, running: Sequence[Request], step: StepView) -> Sequence[Request] | None:
        """By deadline of the next token; where everybody decodes, all get one anyway."""
        return sorted(running, key=_due) if step.running_prefills() else None

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request:
        """Who is due last; of equal ones the last admitted."""
        return max(reversed(candidates), key=_due)


def _due(request: Request) -> float:
    """When the next token is due, in seconds on the scheduler's clock."""
    slo, first = request.slo, request.deadline
    if first is None:
        promised = None if slo is None else slo.ttft_s
        first = inf if promised is None else request.arrival_time + promised
    each = None if slo is None else slo.tpot_s
    return first + request.num_output_tokens * (each or 0.0)
