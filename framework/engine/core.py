"""EngineCore: plan a step, run it, apply what came back. It knows no text and no clock.

In async mode the runner works in a thread of its own and one more step is planned meanwhile, so
that planning costs the model nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from framework.errors import HeadwayError, PolicyError, RunnerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from framework.loading import Spec
    from framework.output import RunnerOutput, SchedulerOutput, StepResult
    from framework.protocols import Runner
    from framework.request import Request
    from framework.scheduler import Scheduler

MOST_IN_FLIGHT = 2
log = logging.getLogger("headway.core")
Found: TypeAlias = "RunnerOutput | Future[RunnerOutput]"


class EngineCore:
    """One scheduler and one runner, step by step.

    Args:
        scheduler: plans; its `config.async_scheduling` says whether steps overlap.
        runner: executes plans. It is used, not owned: `close` leaves it open.
    """

    def __init__(self, scheduler: Scheduler, runner: Runner) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self._flights: deque[tuple[SchedulerOutput, Future[Found]]] = deque()
        self._thread = (
            ThreadPoolExecutor(1, thread_name_prefix="headway-runner")
            if scheduler.config.async_scheduling
            else None
        )
        self._early: deque[StepResult] = deque()
        self._failure: Exception | None = None
        self.is_idle = False
        """The newest plan was empty: nothing to run, or an outside event is awaited."""

    def add(self, request: Request) -> None:
        """Hand a request to the scheduler.

        Raises:
            RequestError: it is refused; nothing was changed.
        """
        self.scheduler.add_request(request)

    def abort(self, request_id: str) -> bool:
        """End a request now; unknown and finished ids are ignored. True if one was ended."""
        return self.scheduler.abort(request_id)

    @property
    def has_work(self) -> bool:
        """True while a call of `step` is worth it: requests, steps in flight, ids to hand out."""
        return bool(self._flights or self._early) or self.scheduler.has_requests()

    def step(self) -> StepResult | None:
        """Run one step and apply its results; None if there is no work.

        Raises:
            PolicyError: a plugin failed. Nothing in flight is lost and `step` may be called
                again; results that were applied already are in `error.result`.
            StallError: what remains can never be scheduled.
            HeadwayError: the runner failed in this or an earlier step; the engine is done.
        """
        self._check_alive()
        if self._early:
            return self._early.popleft()
        if not self.has_work:
            return None
        self._launch()
        return self._finish_oldest()

    def swap(self, plugins: Sequence[Spec]) -> None:
        """Put another stack in place of this one; every unfinished request goes on.

        The steps in flight are waited for and applied; the next calls of `step` return what they
        gave. What a plugin of the old stack raises meanwhile is logged.

        Args:
            plugins: the whole new stack, last asked first.

        Raises:
            PluginError, PolicyError: the new stack cannot be used; the old one stays.
            HeadwayError: transfers of external KV are under way, and the old one stays
                (`scheduler.has_transfers` tells when they are through); or the runner failed.
        """
        self._check_alive()
        while self._flights:
            try:
                self._early.append(self._finish_oldest())
            except PolicyError as error:
                log.warning("in the last steps of the stack that is replaced: %s", error)
                if error.result is not None:
                    self._early.append(error.result)
        self.scheduler.swap(plugins)

    def take_early(self) -> list[StepResult]:
        """What a swap applied and no step has returned yet, oldest first; no step will now."""
        early = list(self._early)
        self._early.clear()
        return early

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise HeadwayError(
                f"the runner failed earlier and cannot go on: {self._failure}"
            ) from self._failure

    def _finish_oldest(self) -> StepResult:
        """Wait for the oldest step in flight and apply its results."""
        output, running = self._flights[0]
        try:
            found = running.result()
            found = found.result() if isinstance(found, Future) else found
        except Exception as error:
            self._failure = error
            raise
        self._flights.popleft()
        try:
            return self.scheduler.update_from_output(output, found)
        except RunnerError as error:
            self._failure = error
            raise

    def _launch(self) -> None:
        """Plan and start what may start: one step, or in async mode up to two in flight."""
        most = MOST_IN_FLIGHT if self._thread is not None else 1
        while len(self._flights) < most and self.scheduler.has_requests():
            output = self.scheduler.schedule()
            self._flights.append((output, self._start(output)))
            self.is_idle = not output.num_scheduled_tokens
            if self.is_idle:
                return

    def _start(self, output: SchedulerOutput) -> Future[Found]:
        if self._thread is not None:
            return self._thread.submit(self.runner.execute, output)
        done: Future[Found] = Future()
        try:
            done.set_result(self.runner.execute(output))
        except Exception as error:
            done.set_exception(error)
        return done

    def close(self) -> None:
        """Wait for the steps in flight and give the thread back. The runner stays open."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
