"""Policies with one fault each, for the tests of `check_policy` and `headway check`."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define, field

from framework import (
    HOLD,
    Answer,
    PreemptMode,
    Request,
    SchedulerOutput,
    Status,
    StepView,
    WaitingView,
    hookimpl,
)


@define(eq=False)
class Fine:
    """No fault: in order of arrival."""

    @hookimpl
    def order_waiting(self, request: Request) -> tuple[bool, float]:
        return request.status is not Status.PREEMPTED, request.arrival_time


@define(eq=False)
class StrangeVictim:
    """Names a victim that does not run."""

    @hookimpl
    def pick_preempt_victim(self, request: Request, step: StepView) -> Request:
        return Request("stranger", [1, 2, 3])


@define(eq=False)
class OverBudget:
    """Tells the runner of more tokens than the step has."""

    @hookimpl
    def step_planned(self, output: SchedulerOutput) -> None:
        for name in list(output.num_scheduled_tokens)[:1]:
            output.num_scheduled_tokens[name] += 100_000
            output.total_num_scheduled_tokens += 100_000


@define(eq=False)
class OverBudgetSwallowed(OverBudget):
    """As that, by the output that it extends."""

    @hookimpl
    def extend_output(self, output: SchedulerOutput) -> dict[str, Any]:
        return {"total_num_scheduled_tokens": 100_000}


@define(eq=False)
class Dropping:
    """Never chooses a certain request."""

    @hookimpl
    def select_waiting(self, waiting: WaitingView) -> Request | Answer:
        chosen = (request for request in waiting if request.request_id != "r3")
        return next(chosen, HOLD)


@define(eq=False)
class Starving:
    """The latest goes first."""

    @hookimpl
    def order_waiting(self, request: Request) -> float:
        return -request.arrival_time


@define(eq=False)
class Peeking:
    """Looks for the true length where some frameworks keep it."""

    @hookimpl
    def order_waiting(self, request: Request) -> int:
        return getattr(request, "output_len", 0)


@define(eq=False)
class PeekingAtTheRunner:
    """Finds the runner in memory and reads the lengths there."""

    _runner: Any = field(default=None, init=False)

    @hookimpl
    def select_waiting(self, waiting: WaitingView) -> Request | None:
        if self._runner is None:
            runners = (one for one in gc.get_objects() if type(one).__name__ == "SimulatedRunner")
            self._runner = list(runners)[-1]
        lengths = self._runner._output_lens
        return min(waiting, key=lambda request: lengths[request.request_id], default=None)


@define(eq=False)
class Mutating:
    """Makes requests urgent."""

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        request.priority = -1


@define(eq=False)
class MutatingTokens:
    """Adds a token to a running request's own."""

    @hookimpl
    def order_running(self, running: Sequence[Request]) -> None:
        for request in running[:1]:
            request.all_token_ids.append(7)


@define(eq=False)
class Raising:
    """Does not know requests of tenant "b"."""

    @hookimpl
    def request_admitted(self, request: Request) -> None:
        _ = {None: 0, "a": 1}[request.tenant]


@define(eq=False)
class Slow:
    """Hundreds of times too slow, where many run."""

    @hookimpl
    def order_running(self, running: Sequence[Request]) -> None:
        if len(running) > 32:
            time.sleep(0.03)


@define(eq=False)
class Idling:
    """Admits nobody while somebody runs, although there is room."""

    @hookimpl
    def select_waiting(self, step: StepView) -> Answer | None:
        return HOLD if step.num_running else None


@define(eq=False)
class Moody:
    """Decides by where objects lie in memory."""

    @hookimpl
    def select_waiting(self, waiting: WaitingView) -> Request | None:
        return min(waiting, key=lambda request: id(request) // 64 % 7, default=None)


@define(eq=False)
class Turning:
    """Equal requests take turns, and what was computed is thrown away."""

    @hookimpl
    def pick_displaced(self, candidates: Iterable[Request], step: StepView) -> Request | None:
        spent = [request for request in candidates if request.num_output_tokens > 3]
        return spent[0] if spent and spent[0].num_preemptions < 1 else None

    @hookimpl
    def preempt_mode(self) -> PreemptMode:
        return PreemptMode.RECOMPUTE


@define(eq=False)
class Impatient:
    """The newest first once somebody has waited for a second."""

    @hookimpl
    def select_waiting(self, waiting: WaitingView, step: StepView) -> Request | None:
        late = [request for request in waiting if step.now - request.arrival_time > 0.3]
        return late[-1] if late else None
