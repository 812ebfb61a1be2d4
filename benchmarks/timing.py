"""How a load is timed: both halves of a step apart, each run in a process of its own.

Making up the runner's output lies outside of what is timed.
"""

from __future__ import annotations

import gc
import os
import pickle
import traceback
from statistics import fmean, median
from time import perf_counter_ns
from typing import TYPE_CHECKING

from attrs import define, field

from framework import RunnerOutput, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from framework import SchedulerOutput

SAMPLED_TOKEN = 11


@define
class Run:
    """One run of one load.

    Attributes:
        schedule_us, update_us: microseconds, one number a step.
        before_us: microseconds spent on building and adding the requests, where the load counts
            them.
        num_requests: times are given per request if it is not 0, else per step.
        facts: what must be the same whoever runs the load (steps, preemptions, ...).
    """

    schedule_us: list[float] = field(factory=list)
    update_us: list[float] = field(factory=list)
    before_us: float = 0.0
    num_requests: int = 0
    facts: dict[str, float] = field(factory=dict)

    @property
    def sums_us(self) -> list[float]:
        """Schedule and update together, one number a step."""
        return [one + two for one, two in zip(self.schedule_us, self.update_us, strict=True)]

    @property
    def median_us(self) -> float:
        """Of the steps, or everything per request."""
        return self._per_request() if self.num_requests else median(self.sums_us)

    @property
    def mean_us(self) -> float:
        """Of the steps, or everything per request."""
        return self._per_request() if self.num_requests else fmean(self.sums_us)

    def _per_request(self) -> float:
        return (self.before_us + sum(self.sums_us)) / self.num_requests


def sample(scheduler: Scheduler, output: SchedulerOutput) -> RunnerOutput:
    """What a runner would answer: one token for everybody who is not in mid-prefill."""
    requests = scheduler.requests
    return RunnerOutput(
        [
            [] if requests[name].is_prefill_chunk else [SAMPLED_TOKEN]
            for name in output.num_scheduled_tokens
        ]
    )


def step(scheduler: Scheduler, run: Run | None = None) -> SchedulerOutput:
    """One step; its two halves are timed apart and noted in `run`."""
    begin = perf_counter_ns()
    output = scheduler.schedule()
    planned = perf_counter_ns()
    sampled = sample(scheduler, output)
    back = perf_counter_ns()
    scheduler.update_from_output(output, sampled)
    end = perf_counter_ns()
    if run is not None:
        run.schedule_us.append((planned - begin) / 1e3)
        run.update_us.append((end - back) / 1e3)
    return output


def settle() -> None:
    """Collect once and leave what lives now out of later collections, as a server does."""
    gc.collect()
    gc.freeze()


def in_fresh_process(load: Callable[[], Run]) -> Run:
    """Run the load in a forked child, so that no run inherits another's heap.

    Raises:
        RuntimeError: the child failed; its traceback is on stderr.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(load(), pipe)
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"a load ended with status {os.waitstatus_to_exitcode(status)}")
    result: Run = pickle.loads(answer)
    return result
