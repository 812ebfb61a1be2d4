"""Play a scenario in virtual time, with every check after every step and every plugin watched."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import define, field, frozen

from framework.clock import VirtualClock
from framework.engine.models import runner_class
from framework.scheduler import Scheduler
from framework.stack import implemented_hooks, load_plugin
from framework.study.drive import Drive
from framework.study.meter import Meter
from framework.study.run import full_stack, is_oracle
from framework.testing.guarding import guarded
from framework.testing.invariants import Invariants
from framework.testing.proxies import Watch, fresh, proxied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.config import SchedulerConfig
    from framework.loading import Spec
    from framework.output import SchedulerOutput
    from framework.request import Request
    from framework.study.workload import Arrival
    from framework.testing.scenarios import Scenario

STEP_LIMIT: Final = 20_000
NUM_DRAFTS: Final = 3
DRAFTING: Final = {"propose_drafts", "compute_num_drafts"}


class UnendingError(Exception):
    """A run made no end."""


@frozen
class Step:
    """What one step did.

    Attributes:
        tokens: (request id, tokens) in the plan's order. lost: who lost its place.
        ended: (request id, reason). seconds: how long it took, 0 if nothing ran.
        num_held_back: who waited although a slot, half the tokens and
            memory for each of them were free.
    """

    tokens: tuple[tuple[str, int], ...]
    lost: tuple[str, ...]
    ended: tuple[tuple[str, str], ...]
    seconds: float
    num_held_back: int


@define(eq=False)
class Played(Drive):
    """A run that keeps what its checks need.

    Attributes:
        watch: what the plugins were seen to do.
        invariants: what holds after each step, or None: not looked at.
        steps: what each did. made: {id: request} as it was handed over.
    """

    watch: Watch = field(factory=Watch)
    invariants: Invariants | None = None
    steps: list[Step] = field(factory=list, init=False)
    made: dict[str, Request] = field(factory=dict, init=False)

    @property
    def ended(self) -> dict[str, str]:
        """{request id: reason}, in the order of their ends."""
        return {each.arrival.request_id: each.reason for each in self.meter.ended}

    @property
    def e2e(self) -> dict[str, float]:
        """{request id: seconds from arrival to end}."""
        return dict(zip(self.ended, self.meter.columns["e2e"], strict=True))

    @property
    def log(self) -> list[Any]:
        """All that happened, to be compared with another run."""
        return [*self.steps, *self.scheduler.events]

    def _request(self, time: float, number: int, arrival: Arrival) -> Request:
        request = super()._request(time, number, arrival)
        request = self.made[request.request_id] = guarded(request, self.watch)
        return request

    def _step(self) -> None:
        scheduler, clock = self.scheduler, self.runner.clock
        if len(self.steps) >= STEP_LIMIT:
            left = sorted(scheduler.requests)
            raise UnendingError(f"after {STEP_LIMIT} steps {left} are unfinished")
        start = perf_counter()
        output = scheduler.schedule()
        self.scheduler_s += perf_counter() - start
        if self.invariants is not None:
            self.invariants.after_schedule(output)
        num_held_back = self._num_held_back(output)
        found = self.runner.execute(output)
        if not output.num_scheduled_tokens and scheduler.requests:
            self._wait()
        start = perf_counter()
        result = scheduler.update_from_output(output, found)
        self.scheduler_s += perf_counter() - start
        if self.invariants is not None:
            self.invariants.after_update(result)
        self.meter.step(scheduler, output, result, clock.now())
        self.steps.append(
            Step(
                tuple(output.num_scheduled_tokens.items()),
                tuple(output.preempted_req_ids),
                tuple(sorted(result.finish_reasons.items())),
                found.duration_s or 0.0,
                num_held_back,
            )
        )
        if result.finish_reasons:
            self._ended(list(result.finish_reasons), clock.now())

    def _num_held_back(self, output: SchedulerOutput) -> int:
        """How many wait although there is room for each of them."""
        scheduler, config, kv = self.scheduler, self.scheduler.config, self.scheduler.kv
        if len(scheduler.running) >= config.num_slots or output.scheduled_new_reqs or kv is None:
            return 0
        waiting = scheduler.waiting_requests()
        if not waiting or 2 * output.total_num_scheduled_tokens > config.token_budget:
            return 0
        most = max(kv.num_blocks_needed(request.num_known_tokens + 1) for request in waiting)
        return len(waiting) if most < kv.num_free_blocks else 0


def play(scenario: Scenario, plugins: Sequence[Spec], *, checks: bool = True) -> Played:
    """Run a scenario to its end, on new instances of the plugins.

    Args:
        scenario: what arrives at what server.
        plugins: the stack, last asked first; what is usual is put beneath.
        checks: False = no invariants and no watch over what hooks do, only their times.

    Raises:
        InvariantError, UnendingError: the books do not add up; the run makes no end.
        PolicyError, StallError: the policy failed.
    """
    workload, watch = scenario.workload, Watch(checks=checks)
    stack = full_stack([fresh(spec) for spec in plugins], workload)
    loaded = [load_plugin(spec) for spec in stack]
    proxies = [proxied(plugin, watch) for plugin in loaded]
    config, latency = with_drafts(scenario.config, loaded), scenario.latency
    clock, meter = VirtualClock(), Meter()
    runner = runner_class("simulated")(config, latency, clock)
    scheduler = Scheduler(config, [*proxies, meter], clock=clock, latency=latency)
    oracles = [proxy for proxy in proxies if is_oracle(proxy)]
    invariants = Invariants(scheduler) if checks else None
    played = Played(
        workload, scheduler, runner, meter, oracles=oracles, watch=watch, invariants=invariants
    )
    try:
        played.run()
    except Exception as error:
        error.__dict__["played"] = played  # who failed is asked of what it did until then
        raise
    if invariants is not None:
        invariants.at_idle()
    return played


def with_drafts(config: SchedulerConfig, plugins: Sequence[object]) -> SchedulerConfig:
    """Room for drafts, if somebody in the stack proposes any."""
    hooks = {hook for plugin in plugins for hook in implemented_hooks(plugin)}
    return attrs.evolve(config, num_spec_tokens=NUM_DRAFTS) if hooks & DRAFTING else config
