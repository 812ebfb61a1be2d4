"""Skip-join multi-level feedback queue (FastServe): short jobs first without knowing lengths.

Level p has a quantum of `quantum_s * factor**p` seconds; the last level has none. A new request
joins the first level whose quantum holds its predicted prefill (it skips those that it would leave
at once). Levels are served in order, from one token to the next: a waiting request takes the place
of a running one of a later level, the latest of the last. The time of each step is charged to all
who ran in it; who has used up the quantum goes down a level, its clock starts anew, and when it
loses its place it stands at the front of the new level. Who has waited `starvation_s` goes back to
the first level. `mode` says what becomes of a victim's KV (FastServe swaps it ahead of time): with
"keep" it is paused with its blocks, so nobody is displaced where blocks are what is missing.
Source: Wu et al., "FastServe" (arXiv 2305.05920; NSDI 2026).
Hooks: order_waiting, pick_displaced, preempt_mode, pick_preempt_victim, request_arrived,
request_admitted, request_preempted, request_finished, step_finished, scheduler_built.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import count

from attrs import define, field
from attrs.validators import ge, gt, in_, instance_of

from framework import (
    Batch,
    PreemptMode,
    Refusal,
    Request,
    Setup,
    StashKey,
    Status,
    StepReport,
    StepView,
    hookimpl,
)

_NUMBER = instance_of((int, float))


@define(eq=False)
class _Standing:
    """Where a request stands: its level, and the seconds it has run there."""

    level: int
    used_s: float = 0.0


_STANDING: StashKey[_Standing] = StashKey()


@define(eq=False)
class SkipJoinMlfq:
    """Levels with growing quanta.

    Args:
        quantum_s: seconds of the first level.
        factor: from one level's quantum to the next one's.
        num_levels: how many; the last has no quantum.
        starvation_s: seconds of waiting after which a request is lifted; 0 = never.
        mode: "keep", "recompute" or "swap" (needs an owner of external KV).
    """

    may_take_turns = True
    may_use_time = True

    quantum_s: float = field(default=0.01, validator=[_NUMBER, gt(0)])
    factor: float = field(default=2.0, validator=[_NUMBER, ge(1)])
    num_levels: int = field(default=10, validator=[instance_of(int), ge(1)])
    starvation_s: float = field(default=3.0, validator=[_NUMBER, ge(0)])
    mode: str = field(default="keep", validator=in_([mode.value for mode in PreemptMode]))
    _setup: Setup = field(init=False)
    _ahead: count[int] = field(factory=lambda: count(-1, -1), init=False)
    _waits_since: OrderedDict[Request, float] = field(factory=OrderedDict, init=False)
    """{waiting request below the first level: moment}, the oldest moment first."""

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Learn the queue, and the latency model by which prompts skip levels."""
        self._setup = setup

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        """Join the first level that holds the prefill."""
        seconds, level = self._prefill_s(request.num_prompt_tokens), 0
        while self._quantum(level) < seconds:
            level += 1
        request.stash[_STANDING] = _Standing(level)
        self._wait(request, request.arrival_time)

    @hookimpl
    def order_waiting(self, request: Request) -> tuple[int, int]:
        """By level; who comes back stands before those who are new."""
        is_back = request.status in (Status.PREEMPTED, Status.PAUSED)
        return _level(request), next(self._ahead) if is_back else 0

    @hookimpl
    def pick_displaced(
        self, request: Request, candidates: Sequence[Request], step: StepView
    ) -> Request | None:
        """The latest of the last level, for a slot, or for blocks if they would suffice."""
        refusal, level = step.refused[request], _level(request)
        lower = [other for other in candidates if _level(other) > level]
        if not lower or refusal is Refusal.BUDGET:
            return None
        if refusal is Refusal.BLOCKS and (
            self.mode == "keep" or not step.would_fit(request, lower)
        ):
            return None
        return max(reversed(lower), key=_level)

    @hookimpl
    def preempt_mode(self, displaced: bool) -> PreemptMode:
        """As told, but where blocks ran out they must come back."""
        mode = PreemptMode(self.mode)
        return PreemptMode.RECOMPUTE if mode is PreemptMode.KEEP and not displaced else mode

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request:
        """The latest of the last level."""
        return max(reversed(candidates), key=_level)

    @hookimpl
    def request_admitted(self, request: Request) -> None:
        """It waits no more."""
        self._waits_since.pop(request, None)

    @hookimpl
    def request_preempted(self, request: Request, step: StepView) -> None:
        """It waits; a paused one that lost its blocks too waits all the time."""
        self._wait(request, step.now)

    @hookimpl
    def request_finished(self, request: Request) -> None:
        """Forget it."""
        self._waits_since.pop(request, None)

    @hookimpl
    def step_finished(self, report: StepReport) -> None:
        """Charge the step, and lift who has waited too long."""
        for request in report.tokens:
            standing = request.stash[_STANDING]
            standing.used_s += report.duration_s
            if standing.used_s > self._quantum(standing.level):
                standing.level, standing.used_s = standing.level + 1, 0.0
        if not self.starvation_s:
            return
        latest = self._setup.clock.now() - self.starvation_s
        while self._waits_since and next(iter(self._waits_since.values())) <= latest:
            request, _ = self._waits_since.popitem(last=False)
            request.stash[_STANDING] = _Standing(0)
            self._setup.waiting.rekey(request)

    def _wait(self, request: Request, moment: float) -> None:
        if _level(request):
            self._waits_since.setdefault(request, moment)

    def _quantum(self, level: int) -> float:
        return math.inf if level >= self.num_levels - 1 else self.quantum_s * self.factor**level

    def _prefill_s(self, num_tokens: int) -> float:
        latency = self._setup.latency
        if latency is None:
            return 0.0
        return latency.predict(Batch(num_tokens, num_tokens, num_tokens**2 / 2, num_requests=1))


def _level(request: Request) -> int:
    return request.stash[_STANDING].level
