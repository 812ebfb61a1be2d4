"""Serving with a Scheduler, an EngineCore and a TritonRunner, and watching each step do so."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field, frozen

from framework import Request, SamplingParams, Scheduler, SchedulerConfig
from framework.engine.core import EngineCore
from plugins.chunked_prefill import ChunkedPrefill
from plugins.fcfs import Fcfs
from plugins.kv_blocks import KvBlocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gpu_check.place import Mark, Place
    from framework.output import RunnerOutput, SchedulerOutput
    from runners.triton import TritonRunner

BUDGET = 8192
"""Tokens a step."""


@frozen
class Launch:
    """One step as the runner saw it.

    Attributes:
        is_decode: every request of it had one token.
        num_requests: in it.
        host_s: the runner's time to queue it.
        begun, ended: on the device.
    """

    is_decode: bool
    num_requests: int
    host_s: float
    begun: Mark
    ended: Mark


@define(eq=False)
class Planned:
    """The two halves of a step in the scheduler, in seconds."""

    num_tokens: int
    schedule_s: float
    update_s: float = 0.0


@define(eq=False)
class TimedScheduler:
    """A scheduler that notes what its steps cost."""

    inner: Scheduler
    steps: dict[int, Planned] = field(factory=dict, init=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def schedule(self) -> SchedulerOutput:
        """As the inner one."""
        begun = time.perf_counter()
        output = self.inner.schedule()
        took = time.perf_counter() - begun
        self.steps[output.step] = Planned(output.total_num_scheduled_tokens, took)
        return output

    def update_from_output(self, output: SchedulerOutput, found: RunnerOutput) -> Any:
        """As the inner one."""
        begun = time.perf_counter()
        result = self.inner.update_from_output(output, found)
        self.steps[output.step].update_s = time.perf_counter() - begun
        return result


def watch(runner: TritonRunner, place: Place) -> list[Launch]:
    """A list to which every step of the runner that runs anything will be added."""
    launches: list[Launch] = []
    inner: Any = runner._launch

    def launch(output: SchedulerOutput, *given: Any) -> Any:
        counts = output.num_scheduled_tokens.values()
        begun, started = place.mark(), time.perf_counter()
        found = inner(output, *given)
        took = time.perf_counter() - started
        is_decode = sum(counts) == len(counts)
        launches.append(Launch(is_decode, len(counts), took, begun, place.mark()))
        return found

    runner._launch = launch  # type: ignore[method-assign]
    return launches


def prompts_of(vocabulary: int, lengths: Sequence[int], seed: int = 7) -> list[list[int]]:
    """Random tokens; the same for the same lengths and seed."""
    draw = random.Random(seed)
    return [[draw.randrange(vocabulary) for _ in range(length)] for length in lengths]


def config_for(
    lengths: Sequence[int], max_tokens: int, *, is_async: bool = True
) -> SchedulerConfig:
    """Limits under which prompts of these lengths all run at once."""
    longest = max(lengths) + max_tokens + 1
    block_size = 16
    blocks = sum(-(-(length + max_tokens + 1) // block_size) for length in lengths)
    return SchedulerConfig(
        max_num_batched_tokens=max(BUDGET, len(lengths)),
        max_num_seqs=len(lengths),
        max_model_len=longest,
        block_size=block_size,
        num_blocks=blocks + len(lengths) + 2,
        async_scheduling=is_async,
    )


@define(eq=False)
class Server:
    """The default stack on one runner, for one set of prompts after another."""

    runner: TritonRunner
    scheduler: TimedScheduler = field(init=False)
    engine: Any = field(init=False)
    num_requests: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        stack = [KvBlocks(), ChunkedPrefill(), Fcfs()]
        self.scheduler = TimedScheduler(Scheduler(self.runner.config, stack))
        scheduler: Any = self.scheduler
        self.engine = EngineCore(scheduler, self.runner)

    @torch.inference_mode()
    def serve(self, prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        """Their greedy outputs."""
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        requests = [
            Request(f"r{self.num_requests + index}", prompt, params)
            for index, prompt in enumerate(prompts)
        ]
        self.num_requests += len(requests)
        for request in requests:
            self.engine.add(request)
        while self.engine.has_work:
            self.engine.step()
        return [list(request.output_token_ids) for request in requests]

    def close(self) -> None:
        """Give thread and cache back."""
        self.engine.close()
        self.runner.close()
