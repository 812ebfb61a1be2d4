"""Meter: measures a run in virtual time, at a cost that depends on what changes.

While the same requests give tokens step after step, a step costs one comparison: all of them saw
the same gap. What is kept of a request that has ended is one number a column.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from attrs import define, field

from framework.errors import bad_field
from framework.hookspecs import hookimpl
from framework.study.fairness import Service
from framework.study.series import Gaps, Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.output import SchedulerOutput, StepResult
    from framework.protocols import Hit
    from framework.request import PreemptMode, Request
    from framework.scheduler import Scheduler
    from framework.study.workload import Arrival
    from framework.view import StepView

COLUMNS = ("arrival", "queueing", "ttft", "tpot", "e2e", "longest_gap", "output_len", "prompt_len")
NAN = float("nan")


@define(eq=False)
class Life:
    """One request while it lives. Times in seconds, None = has not happened.

    `run` is the number of the step since which it has given tokens without a break, or -1.
    """

    arrival: Arrival
    time: float
    first_admission: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    longest_gap: float = 0.0
    num_outputs: int = 0
    num_cached: int = 0
    num_preemptions: int = 0
    is_waiting: bool = True
    run: int = -1


@define(eq=False)
class Ended:
    """What is kept of a request, beside the columns."""

    arrival: Arrival
    reason: str
    meets_slo: bool


@define(eq=False)
class Meter:
    """A plugin that observes, and the rest of what a study wants to know.

    Args:
        tenant_weights: {tenant: share}, 1 where nothing is said.
    """

    name = "meter"

    tenant_weights: dict[str, float] = field(factory=dict)
    columns: dict[str, array[float]] = field(init=False)
    ended: list[Ended] = field(factory=list, init=False)
    lives: dict[str, Life] = field(factory=dict, init=False)
    gaps: Gaps = field(factory=Gaps, init=False)
    series: Series = field(factory=Series, init=False)
    service: Service = field(init=False)
    preemptions: dict[str, int] = field(factory=dict, init=False)
    errors: dict[str, str] = field(factory=dict, init=False)
    num_unseen: int = field(default=0, init=False)
    end: float = field(default=0.0, init=False)
    num_prompt_tokens: int = field(default=0, init=False)
    num_cached_tokens: int = field(default=0, init=False)
    _times: list[float] = field(factory=list, init=False)
    _gaps: list[float] = field(factory=list, init=False)
    _giving: list[str] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        for weight in self.tenant_weights.values():
            if not isinstance(weight, int | float) or not 0 < weight < float("inf"):
                raise bad_field("tenant_weights", self.tenant_weights, "numbers above 0")
        self.columns = {name: array("d") for name in COLUMNS}
        self.service = Service(self.tenant_weights)

    def arrived(self, arrival: Arrival, time: float) -> None:
        """A request comes."""
        self.lives[arrival.request_id] = Life(arrival, time)
        self.service.waits(arrival.tenant, 1)

    def refused(self, request_id: str, now: float, sentence: str) -> None:
        """It was not even queued."""
        self.errors[request_id] = sentence
        self._end(request_id, now, "refused")

    @hookimpl
    def request_admitted(self, request: Request, hit: Hit, resumed: bool, step: StepView) -> None:
        """Queueing and hits are those of the first admission."""
        life = self.lives[request.request_id]
        self._waits(life, False)
        if resumed:
            return
        life.first_admission = step.now
        life.num_cached = hit.num_tokens
        self.num_prompt_tokens += request.num_prompt_tokens
        self.num_cached_tokens += hit.num_tokens
        self.service.prompt(request.tenant, request.num_prompt_tokens)

    @hookimpl
    def request_preempted(self, request: Request, mode: PreemptMode) -> None:
        """Counted by what became of its KV."""
        life = self.lives[request.request_id]
        life.num_preemptions += 1
        self._waits(life, True)
        self.preemptions[mode.value] = self.preemptions.get(mode.value, 0) + 1

    @hookimpl
    def request_finished(self, request: Request) -> None:
        """A limit may have ended it before the length that the runner was told."""
        self.lives[request.request_id].num_outputs = request.num_output_tokens

    @hookimpl
    def step_planned(self, step: StepView) -> None:
        """What runs and what it holds, from here to the step's end."""
        self.series.begin(step)

    def step(
        self, scheduler: Scheduler, output: SchedulerOutput, result: StepResult, now: float
    ) -> None:
        """A step's results are in."""
        number = len(self._times)
        self._gaps.append(now - self._times[-1] if number else 0.0)
        self._times.append(now)
        num_going_on = len(self._giving)
        if result.req_ids != self._giving:
            num_going_on = self._change(result.req_ids, number)
        if num_going_on:
            self.gaps.add(self._gaps[-1], num_going_on)
        if result.req_ids:
            self.service.outputs()
        if output.scheduled_spec_decode_tokens:
            for name, tokens in zip(result.req_ids, result.new_token_ids, strict=True):
                self.service.more_outputs(self.lives[name].arrival.tenant, len(tokens) - 1)
        self.service.advance()
        self.series.note(scheduler, output, now)
        for request_id, reason in result.finish_reasons.items():
            self._stop(request_id, number + 1)
            if request_id in result.errors:
                self.errors[request_id] = result.errors[request_id]
            self._end(request_id, now, reason)
        if result.finish_reasons:
            ended = result.finish_reasons
            self._giving = [name for name in self._giving if name not in ended]

    def _change(self, names: Sequence[str], number: int) -> int:
        """Others give tokens than in the step before; returns how many do again."""
        now_giving, num_started = set(names), 0
        for name in self._giving:
            if name not in now_giving:
                self._stop(name, number)
        for name in names:
            life = self.lives[name]
            if life.run < 0:
                self._start(life, number)
                num_started += 1
        self._giving = list(names)
        return len(names) - num_started

    def _start(self, life: Life, number: int) -> None:
        now = self._times[number]
        life.run = number
        self.service.gives(life.arrival.tenant, 1)
        if life.last_token is None:
            life.first_token = now
            return
        gap = now - life.last_token
        life.longest_gap = max(life.longest_gap, gap)
        self.gaps.add(gap)

    def _stop(self, name: str, number: int) -> None:
        """It gave tokens in every step from `run` to the one before `number`."""
        life = self.lives[name]
        if life.run < 0:
            return
        life.last_token = self._times[number - 1]
        longest = max(self._gaps[life.run + 1 : number], default=0.0)
        life.longest_gap = max(life.longest_gap, longest)
        life.run = -1
        self.service.gives(life.arrival.tenant, -1)

    def _waits(self, life: Life, is_waiting: bool) -> None:
        """It waits or not; one that was paused may lose its place twice."""
        if life.is_waiting is not is_waiting:
            life.is_waiting = is_waiting
            self.service.waits(life.arrival.tenant, 1 if is_waiting else -1)

    def _end(self, request_id: str, now: float, reason: str) -> None:
        life = self.lives.pop(request_id)
        self._waits(life, False)
        arrival = life.arrival
        is_served = reason in ("stop", "length")
        tpot, num_outputs = NAN, life.num_outputs if is_served else arrival.output_len
        if is_served and num_outputs > 1 and life.first_token is not None:
            tpot = ((life.last_token or now) - life.first_token) / (num_outputs - 1)
        has_gap = is_served and life.last_token != life.first_token
        row = {
            "arrival": life.time,
            "queueing": _minus(life.first_admission, life.time),
            "ttft": _minus(life.first_token, life.time),
            "tpot": tpot,
            "e2e": now - life.time if is_served else NAN,
            "longest_gap": life.longest_gap if has_gap else NAN,
            "output_len": float(num_outputs),
            "prompt_len": float(arrival.prompt_len),
        }
        for name, column in self.columns.items():
            column.append(row[name])
        self.ended.append(Ended(arrival, reason, is_served and meets_slo(arrival, row)))

    def close(self, now: float, unseen: Sequence[Any]) -> None:
        """The run is over; who still lives is unfinished, and missed its promise."""
        self.end = now
        self.num_unseen = len(unseen)
        for name in list(self.lives):
            self._stop(name, len(self._times))
            self._end(name, now, "unfinished")


def meets_slo(arrival: Arrival, row: dict[str, float]) -> bool:
    """Whether everything that was promised was kept; a mean over no gap is no promise."""
    slo = arrival.slo
    if slo is None:
        return True
    first = slo.ttft_s is None or row["ttft"] <= slo.ttft_s
    rest = slo.tpot_s is None or row["output_len"] == 1 or row["tpot"] <= slo.tpot_s
    return first and rest


def _minus(later: float | None, earlier: float) -> float:
    return NAN if later is None else later - earlier
