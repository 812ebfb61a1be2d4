"""Run a stack on a handful of requests, with every check after every step."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import attrs
from attrs import define, field

from framework.config import SchedulerConfig
from framework.errors import HeadwayError, RequestError
from framework.request import Request
from framework.sampling import SamplingParams
from framework.scheduler import Scheduler
from framework.testing.invariants import Invariants
from framework.testing.model import TokenRunner, default_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from framework.output import RunnerOutput, SchedulerOutput, StepResult
    from framework.protocols import Clock, LatencyModel
    from framework.testing.model import DraftFunction, TokenFunction

STEP_LIMIT = 10_000
ALONE_STACK = ("kv_blocks(enable_prefix_caching=False)", "chunked_prefill", "fcfs")


@define(eq=False)
class Trace:
    """What a simulation did.

    Attributes:
        scheduler: the one that was driven.
        outputs: every plan, in order.
        results: what came back for each.
        requests: {id: request} as they ended, refused ones left out.
        refused: {id: sentence} of requests that `add_request` refused.
    """

    scheduler: Scheduler
    outputs: list[SchedulerOutput] = field(factory=list)
    results: list[StepResult] = field(factory=list)
    requests: dict[str, Request] = field(factory=dict)
    refused: dict[str, str] = field(factory=dict)

    @property
    def planned(self) -> list[dict[str, int]]:
        """{id: tokens} of every step."""
        return [output.num_scheduled_tokens for output in self.outputs]

    @property
    def tokens(self) -> dict[str, list[int]]:
        """{id: output tokens}."""
        return {name: request.output_token_ids for name, request in self.requests.items()}

    @property
    def preempted(self) -> list[str]:
        """Ids of the victims, in order."""
        return [name for output in self.outputs for name in output.preempted_req_ids]


def make_requests(
    count: int,
    *,
    prompt_len: int | Sequence[int] = 8,
    max_tokens: int | Sequence[int] = 4,
    **fields: Any,
) -> list[Request]:
    """Requests r0, r1, ... with unlike prompts.

    Parameters:
        count: how many.
        prompt_len, max_tokens: tokens; one number for all, or a sequence that is gone round.
        fields: further fields of Request, the same for all.
    """
    lengths = [prompt_len] if isinstance(prompt_len, int) else prompt_len
    limits = [max_tokens] if isinstance(max_tokens, int) else max_tokens
    requests = []
    for index in range(count):
        first = 1 + 1000 * index
        prompt = list(range(first, first + lengths[index % len(lengths)]))
        params = SamplingParams(max_tokens=limits[index % len(limits)])
        requests.append(Request(f"r{index}", prompt, **{"sampling_params": params, **fields}))
    return requests


def simulate(
    plugins: Sequence[object],
    requests: Iterable[Request],
    config: SchedulerConfig | None = None,
    *,
    tokens: TokenFunction = default_tokens,
    drafts: DraftFunction | None = None,
    arrive_at: Mapping[str, int] | None = None,
    abort_at: Mapping[str, int] | None = None,
    clock: Clock | None = None,
    latency: LatencyModel | None = None,
    max_steps: int = STEP_LIMIT,
) -> Trace:
    """Run requests to their ends and check everything after every step.

    Parameters:
        plugins: the stack, last asked first.
        requests: they arrive in this order.
        config: the limits; with `async_scheduling` two steps are in flight.
        tokens: what the model samples.
        drafts: what the runner proposes; None = it proposes nothing (a plugin may).
        arrive_at, abort_at: {id: step}; 0 and never, where nothing is said.
        clock: the scheduler's; real time by default.
        latency: what policies may predict with, or None.
        max_steps: more of them raise HeadwayError.

    Raises:
        InvariantError: the books do not add up.
        HeadwayError: what the scheduler raised; only refused requests are noted in the trace.
    """
    scheduler = Scheduler(config, plugins, clock=clock, latency=latency)
    block_size, paged = scheduler.config.block_size, scheduler.kv is not None
    runner = TokenRunner(block_size, tokens, drafts, paged=paged)
    simulation = _Simulation(scheduler, runner, list(requests), arrive_at or {}, abort_at or {})
    return simulation.run(max_steps)


def run_alone(
    requests: Iterable[Request],
    config: SchedulerConfig | None = None,
    *,
    tokens: TokenFunction = default_tokens,
) -> dict[str, list[int]]:
    """{id: output tokens} when each request runs by itself, without cache, drafts or preemption.

    The requests are copied, so they can be used afterwards.
    """
    alone = attrs.evolve(config or SchedulerConfig(), num_spec_tokens=0, async_scheduling=False)
    scheduler = Scheduler(alone, ALONE_STACK)
    simulation = _Simulation(scheduler, TokenRunner(alone.block_size, tokens), [], {}, {})
    for request in requests:
        simulation.requests = [attrs.evolve(request)]
        simulation.run(STEP_LIMIT)
    return simulation.trace.tokens


@define(eq=False)
class _Simulation:
    scheduler: Scheduler
    runner: TokenRunner
    requests: list[Request]
    arrive_at: Mapping[str, int]
    abort_at: Mapping[str, int]
    trace: Trace = field(init=False)
    invariants: Invariants = field(init=False)
    in_flight: deque[tuple[SchedulerOutput, RunnerOutput]] = field(factory=deque)

    def __attrs_post_init__(self) -> None:
        self.trace = Trace(self.scheduler)
        self.invariants = Invariants(self.scheduler)

    def run(self, max_steps: int) -> Trace:
        scheduler, step = self.scheduler, 0
        last_event = max([*self.arrive_at.values(), *self.abort_at.values()], default=0)
        while step <= last_event or self.in_flight or scheduler.has_requests():
            if step >= max_steps:
                raise HeadwayError(
                    f"after {max_steps} steps {sorted(scheduler.requests)} are unfinished"
                )
            self._change_requests(step)
            self._one_step()
            step += 1
        self.invariants.at_idle()
        return self.trace

    def _change_requests(self, step: int) -> None:
        scheduler, trace = self.scheduler, self.trace
        for request in self.requests:
            if self.arrive_at.get(request.request_id, 0) == step:
                try:
                    scheduler.add_request(request)
                except RequestError as error:
                    trace.refused[request.request_id] = str(error)
                else:
                    trace.requests[request.request_id] = request
        for name, at in self.abort_at.items():
            if at == step:
                scheduler.abort(name)
        self.invariants.check_state()

    def _one_step(self) -> None:
        """Plan a step, and apply the oldest one's results unless another may be planned first."""
        scheduler = self.scheduler
        depth = 2 if scheduler.config.async_scheduling else 1
        if scheduler.has_requests():
            output = scheduler.schedule()
            self.invariants.after_schedule(output)
            self.trace.outputs.append(output)
            self.in_flight.append((output, self.runner.execute(output)))
            if len(self.in_flight) < depth and scheduler.has_requests():
                return
        if self.in_flight:
            result = scheduler.update_from_output(*self.in_flight.popleft())
            self.invariants.after_update(result)
            self.trace.results.append(result)
