"""One workload through one stack, in virtual time.

Time moves in two ways: a step takes what the runner says, and where nothing can be done before the
next arrival, the clock goes there.
"""

from __future__ import annotations

from heapq import heappop, heappush
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from attrs import Attribute, define, evolve, field

from framework.errors import HeadwayError, RequestError, bad_field
from framework.request import Request
from framework.sampling import SamplingParams
from framework.study.workload import prompt_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from framework.clock import VirtualClock
    from framework.output import RunnerOutput, SchedulerOutput
    from framework.scheduler import Scheduler
    from framework.study.meter import Meter
    from framework.study.workload import Arrival, Workload

IDLE_S = 0.001
"""How long a step takes in which nothing could run although work was there."""


class TimedRunner(Protocol):
    """What a study needs of a runner."""

    clock: VirtualClock
    eos_token_ids: tuple[int, ...]

    def expect(self, request_id: str, num_output_tokens: int) -> None:
        """Tell how many tokens a request will give."""

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        """Run a step and move the clock."""


class Told(Protocol):
    """A predictor that is told the truth: an oracle."""

    def expect(self, request_id: str, num_output_tokens: int) -> None:
        """Be told how many tokens a request will give, before it arrives."""


def _above_zero(_: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None and (not isinstance(value, int | float) or not value > 0):
        raise bad_field(attribute.name, value, "seconds above 0, or None")


@define(eq=False)
class Drive:
    """A run in the making.

    Args:
        workload: what arrives.
        scheduler: with the runner's clock, and `meter` among its plugins.
        runner: executes the plans.
        meter: is told everything.
        horizon: seconds at which the run is cut; None = until all have ended.
        on_end: told how many requests have just ended.
        oracles: predictors that are told each request's true length.
        scheduler_s: real seconds that the scheduler took; nothing else here is real time.
    """

    workload: Workload
    scheduler: Scheduler
    runner: TimedRunner
    meter: Meter
    horizon: float | None = field(default=None, validator=_above_zero)
    on_end: Callable[[int], object] | None = None
    oracles: Sequence[Told] = ()
    scheduler_s: float = field(default=0.0, init=False)
    _coming: list[tuple[float, int, Arrival]] = field(factory=list, init=False)
    _children: dict[str, list[tuple[int, Arrival]]] = field(factory=dict, init=False)
    _parents: dict[str, Request] = field(factory=dict, init=False)
    _endings: set[str] = field(factory=set, init=False)

    def run(self) -> None:
        """To the end, or to the horizon.

        Raises:
            PolicyError, StallError: the policy failed.
        """
        for number, arrival in enumerate(self.workload.arrivals):
            if arrival.parent is None:
                heappush(self._coming, (arrival.time, number, arrival))
            else:
                self._children.setdefault(arrival.parent, []).append((number, arrival))
        clock, scheduler = self.runner.clock, self.scheduler
        while self._coming or scheduler.has_requests():
            if self.horizon is not None and clock.now() >= self.horizon:
                break
            self._arrive(clock.now())
            if scheduler.has_requests():
                self._step()
            elif self._coming:
                clock.advance_to(self._coming[0][0])
        self.meter.close(clock.now(), self._unseen())

    def _arrive(self, now: float) -> None:
        """Hand over everybody whose time has come."""
        while self._coming and self._coming[0][0] <= now:
            time, number, arrival = heappop(self._coming)
            request = self._request(time, number, arrival)
            self.meter.arrived(arrival, time)
            if arrival.request_id in self._children:
                self._parents[arrival.request_id] = request
            for one in (self.runner, *self.oracles):
                one.expect(arrival.request_id, arrival.output_len)
            try:
                self.scheduler.add_request(request)
            except RequestError as error:
                self.meter.refused(arrival.request_id, now, str(error))
                self._ended([arrival.request_id], now)

    def _request(self, time: float, number: int, arrival: Arrival) -> Request:
        tokens: Sequence[int]
        parent = None if arrival.parent is None else self._parents.get(arrival.parent)
        if parent is None or arrival.prefix:
            tokens = prompt_tokens(arrival, number)
        else:
            before = parent.all_token_ids[: arrival.prompt_len]
            rest = evolve(arrival, prompt_len=max(1, arrival.prompt_len - len(before)), prefix=())
            tokens = [*before, *prompt_tokens(rest, number)]
        longest = self.scheduler.config.max_model_len - len(tokens)
        limit = max(1, min(self.workload.max_output_len, longest))
        return Request(
            arrival.request_id,
            tokens,
            SamplingParams(max_tokens=limit, temperature=0.0),
            arrival_time=time,
            priority=arrival.priority,
            tenant=arrival.tenant,
            eos_token_ids=self.runner.eos_token_ids,
            slo=arrival.slo,
            deadline=None if arrival.slo is None else _deadline(time, arrival),
        )

    def _step(self) -> None:
        scheduler, clock = self.scheduler, self.runner.clock
        start = perf_counter()
        output = scheduler.schedule()
        self.scheduler_s += perf_counter() - start
        found = self.runner.execute(output)
        if not output.num_scheduled_tokens and scheduler.requests:
            self._wait()
        start = perf_counter()
        result = scheduler.update_from_output(output, found)
        self.scheduler_s += perf_counter() - start
        self.meter.step(scheduler, output, result, clock.now())
        if result.finish_reasons:
            self._ended(list(result.finish_reasons), clock.now())

    def _wait(self) -> None:
        """Nobody could run: time goes on all the same, at most to the next arrival."""
        clock = self.runner.clock
        until = clock.now() + IDLE_S
        clock.advance_to(min(until, self._coming[0][0]) if self._coming else until)

    def _ended(self, names: Sequence[str], now: float) -> None:
        """Children of those that ended may come."""
        for name in names:
            for number, child in self._children.pop(name, ()):
                heappush(self._coming, (now + child.time, number, child))
        if self.on_end is not None:
            self.on_end(len(names))

    def _unseen(self) -> list[Arrival]:
        """Who never arrived before the horizon."""
        waiting = [child for children in self._children.values() for _, child in children]
        return [arrival for _, _, arrival in self._coming] + waiting


def _deadline(time: float, arrival: Arrival) -> float | None:
    """When the first token is due."""
    slo = arrival.slo
    if slo is None or slo.ttft_s is None:
        return None
    return time + slo.ttft_s


def check_sync(scheduler: Scheduler) -> None:
    """Raise HeadwayError where two steps would be in flight: virtual time has one at a time."""
    if scheduler.config.async_scheduling:
        raise HeadwayError("async_scheduling: got True, allowed: False in virtual time")
