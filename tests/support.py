"""Bench: a scheduler, a model and every check after every call.

The model is greedy: the next token is a function of the tokens so far (the prompt and how many
came after it), so two requests with one prompt must give one output.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

from attrs import define, field

from framework import Request, SamplingParams, Scheduler, SchedulerConfig, Status
from framework.testing import Invariants, TokenRunner, run_alone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.output import SchedulerOutput, StepResult
    from framework.protocols import Clock, LatencyModel

FCFS = ("kv_blocks", "chunked_prefill", "fcfs")
PRIORITY = ("kv_blocks", "chunked_prefill", "priority")
DISPLACING = ("kv_blocks", "chunked_prefill", "priority(displace=True)")


def prompt(length: int, first: int = 1) -> list[int]:
    """`length` tokens, counting up from `first`."""
    return list(range(first, first + length))


def next_token(prompt_token_ids: Sequence[int], position: int) -> int:
    """Output token number `position` of a prompt."""
    return crc32(f"{list(prompt_token_ids)}/{position}".encode()) % 32_000


@define(eq=False)
class Bench:
    """Drives one scheduler by hand.

    Attributes:
        outputs, results: every plan and every result, in order.
        requests: every request that was accepted, in order.
        ends: (id, reason) as results told them.
    """

    scheduler: Scheduler
    runner: TokenRunner = field(init=False)
    invariants: Invariants = field(init=False)
    outputs: list[SchedulerOutput] = field(factory=list)
    results: list[StepResult] = field(factory=list)
    requests: list[Request] = field(factory=list)
    ends: list[tuple[str, str]] = field(factory=list)
    _prompts: dict[str, Sequence[int]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.runner = TokenRunner(
            self.scheduler.config.block_size,
            lambda name, position: next_token(self._prompts[name], position),
            paged=self.scheduler.kv is not None,
        )
        self.invariants = Invariants(self.scheduler)

    def add(
        self,
        name: str,
        tokens: Sequence[int] | int,
        max_tokens: int | None = 1,
        *,
        params: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Request:
        """Add a request; a number stands for a prompt of so many tokens that nobody else has."""
        if isinstance(tokens, int):
            tokens = prompt(tokens, 1 + 1000 * (1 + len(self.requests)))
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0, **params or {})
        request = Request(name, tokens, sampling, **fields)
        self.scheduler.add_request(request)
        self._prompts[name] = tokens
        self.requests.append(request)
        self.invariants.check_state()
        return request

    def abort(self, name: str) -> bool:
        """Abort and check."""
        ended = self.scheduler.abort(name)
        self.invariants.check_state()
        return ended

    def schedule(self) -> SchedulerOutput:
        """Plan and check."""
        output = self.scheduler.schedule()
        self.invariants.after_schedule(output)
        self.outputs.append(output)
        return output

    def update(self, output: SchedulerOutput) -> StepResult:
        """Run the plan, apply its results, and check."""
        result = self.scheduler.update_from_output(output, self.runner.execute(output))
        self.invariants.after_update(result)
        self.results.append(result)
        self.ends += result.finish_reasons.items()
        return result

    def step(self) -> dict[str, int]:
        """Plan, run, apply: {id: tokens}."""
        output = self.schedule()
        self.update(output)
        return output.num_scheduled_tokens

    def steps(self, count: int) -> list[dict[str, int]]:
        """`count` steps."""
        return [self.step() for _ in range(count)]

    def finish(self, most: int = 1000) -> int:
        """Step until nothing is left, then check that nothing is; returns the number of steps.

        Each output must be the one of the request run alone, as far as it came.
        """
        count = 0
        while self.scheduler.has_requests():
            assert count < most, f"after {most} steps unfinished: {list(self.scheduler.requests)}"
            self.step()
            count += 1
        self.invariants.at_idle()
        for request in self.requests:
            self._check_output(request)
        return count

    def first_token_step(self, name: str) -> int:
        """Number of the step, from 0, whose result held the first token of a request."""
        return next(result.step for result in self.results if name in result.req_ids)

    def hit(self, name: str) -> int:
        """Cached tokens that the newest first admission of a request got for nothing."""
        return next(
            new.num_computed_tokens
            for output in reversed(self.outputs)
            for new in output.scheduled_new_reqs
            if new.request_id == name
        )

    @property
    def preempted(self) -> list[str]:
        """Ids of the victims so far, in order."""
        return [name for output in self.outputs for name in output.preempted_req_ids]

    def _check_output(self, request: Request) -> None:
        name = request.request_id
        prompt_token_ids, params = tuple(request.prompt_token_ids), request.sampling_params
        alone = output_alone(prompt_token_ids, params, self.scheduler.config)
        count = request.num_output_tokens
        assert request.output_token_ids == alone[:count], name
        if request.status is Status.FINISHED_LENGTH_CAPPED:
            assert count == len(alone), name


@cache
def output_alone(
    prompt_token_ids: tuple[int, ...], params: SamplingParams, config: SchedulerConfig
) -> list[int]:
    """What a request gives that runs by itself, without cache and preemption."""
    request = Request("alone", prompt_token_ids, params)
    outputs = run_alone(
        [request], config, tokens=lambda _, position: next_token(prompt_token_ids, position)
    )
    return outputs["alone"]


def bench(
    stack: Sequence[object] = FCFS,
    *,
    blocks: int = 100,
    budget: int = 64,
    block_size: int = 4,
    clock: Clock | None = None,
    latency: LatencyModel | None = None,
    **limits: Any,
) -> Bench:
    """A bench; `blocks` are usable ones, the reserved block 0 not counted."""
    config = SchedulerConfig(
        block_size=block_size,
        num_blocks=blocks + 1,
        max_num_batched_tokens=budget,
        **limits,
    )
    return Bench(Scheduler(config, stack, clock=clock, latency=latency))
