"""What a step costs: the loads of `loads.py` under pytest-benchmark, at sizes that are quick.

    pytest benchmarks/bench_step.py

Timed: `schedule` and `update_from_output`; the timer stands still while the runner's output is
made up. `extra_info` holds what the same load does in virtual time, which is exact: compare those
figures between two versions first, and times only if they are equal.
"""

from __future__ import annotations

from functools import partial
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define
from loads import Mixed, add_prompts, start_decode, start_prefix_heavy, start_thrash
from timing import sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from framework import Scheduler


class StepTimer:
    """Seconds, without those spent while it was held."""

    def __init__(self) -> None:
        self._held = 0.0

    def __call__(self) -> float:
        """The reading."""
        return perf_counter() - self._held

    def hold(self, function: Callable[[], Any]) -> Any:
        """Call the function off the clock."""
        begin = perf_counter()
        result = function()
        self._held += perf_counter() - begin
        return result


TIMER = StepTimer()
pytestmark = pytest.mark.benchmark(timer=TIMER, disable_gc=True)
either_caching = pytest.mark.parametrize("caching", [False, True], ids=["uncached", "cached"])


@define(eq=False)
class VirtualClock:
    """Time that passes by 5 ms a step and 20 us a token."""

    seconds: float = 0.0

    def now(self) -> float:
        """Seconds since the beginning."""
        return self.seconds

    def pass_step(self, num_tokens: int) -> None:
        """One step is over."""
        self.seconds += 0.005 + 0.00002 * num_tokens


def timed_step(scheduler: Scheduler) -> None:
    """Schedule and update on the clock, the runner's part off it."""
    output = scheduler.schedule()
    sampled = TIMER.hold(partial(sample, scheduler, output))
    scheduler.update_from_output(output, sampled)


def timed_run(scheduler: Scheduler) -> None:
    """Step until everybody is served."""
    while scheduler.has_unfinished_requests():
        timed_step(scheduler)


def simulate(
    scheduler: Scheduler, clock: VirtualClock, feed: Callable[[], None] | None, num_steps: int
) -> dict[str, float]:
    """At most so many steps in virtual time; `feed` is called before each. Exact figures."""
    slot_use: list[float] = []
    first_token: dict[str, float] = {}
    while scheduler.has_unfinished_requests() and len(slot_use) < num_steps:
        if feed is not None:
            feed()
        output = scheduler.schedule()
        clock.pass_step(output.total_num_scheduled_tokens)
        result = scheduler.update_from_output(output, sample(scheduler, output))
        slot_use.append(len(output.num_scheduled_tokens) / scheduler.config.num_slots)
        first_token = dict.fromkeys(result.req_ids, clock.now()) | first_token
    arrived = {one.request_id: one.time for one in scheduler.events if one.kind == "arrived"}
    counters = scheduler.counters
    return {
        "steps": len(slot_use),
        "scheduled_tokens": counters.num_scheduled_tokens,
        "preemptions": counters.num_preemptions,
        "lost_tokens": counters.num_lost_tokens,
        "hit_tokens": counters.num_prefix_hit + counters.num_prefix_hit_again,
        "finished": counters.finished.total(),
        "slot_use": round(fmean(slot_use), 4),
        "virtual_s": round(clock.now(), 4),
        "ttft_ms": round(fmean(at - arrived[name] for name, at in first_token.items()) * 1e3, 2),
    }


@either_caching
@pytest.mark.parametrize("num_running", [1, 16, 256, 1024])
def test_decode(benchmark: Any, num_running: int, caching: bool) -> None:
    scheduler = start_decode(num_running, caching)
    benchmark.pedantic(timed_step, args=(scheduler,), rounds=100, warmup_rounds=3)
    clock = VirtualClock()
    twin = start_decode(num_running, caching, clock=clock)
    benchmark.extra_info |= (info := simulate(twin, clock, None, 100))
    assert (info["slot_use"], info["preemptions"]) == (1.0, 0)


@either_caching
def test_mixed(benchmark: Any, caching: bool) -> None:
    load = Mixed(caching, num_running=64)
    load.feed()
    for _ in range(60):
        load.feed()
        timed_step(load.scheduler)
    benchmark.pedantic(timed_step, args=(load.scheduler,), setup=load.feed, rounds=100)
    clock = VirtualClock()
    twin = Mixed(caching, num_running=64, clock=clock)
    twin.feed()
    benchmark.extra_info |= (info := simulate(twin.scheduler, clock, twin.feed, 160))
    assert (info["finished"] > 64, info["preemptions"]) == (True, 0)


@either_caching
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_thrash(benchmark: Any, policy: str, caching: bool) -> None:
    start = partial(start_thrash, caching, policy, 0.6, num_requests=96)
    benchmark.pedantic(timed_run, setup=lambda: ((start(),), {}), rounds=3)
    clock = VirtualClock()
    benchmark.extra_info |= (info := simulate(start(clock=clock), clock, None, 10_000))
    assert info["finished"] == 96
    assert info["preemptions"] > 0


def test_prefix_heavy(benchmark: Any) -> None:
    def admit_all(scheduler: Scheduler, prompts: list[list[int]]) -> None:
        add_prompts(scheduler, prompts)
        timed_run(scheduler)

    start = partial(start_prefix_heavy, num_requests=200)
    benchmark.pedantic(admit_all, setup=lambda: (start(), {}), rounds=3)
    clock = VirtualClock()
    scheduler, prompts = start(clock=clock)
    add_prompts(scheduler, prompts)
    benchmark.extra_info |= (info := simulate(scheduler, clock, None, 10_000))
    assert info["finished"] == 200
    assert info["hit_tokens"] >= 199 * 1536
