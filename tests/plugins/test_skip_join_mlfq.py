"""Levels with quanta: short jobs first without knowing which they are."""

from __future__ import annotations

from functools import cache

import pytest

from framework import VirtualClock
from framework.study.run import Run, default_config, simulate_policy
from framework.study.workload import Arrival, Workload
from tests.plugins.simulated import LATENCY, SEEDS, mean, simulated
from tests.support import Bench, bench

LOAD = "poisson:rate=16,n=200,prompt=lognormal(200,0.7),output=lognormal(100,1.2)"


@cache
def run(stack: str, seed: int, num_blocks: int = 26876) -> Run:
    return simulated(stack, LOAD, seed, max_num_seqs=16, num_blocks=num_blocks)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("arguments", ["quantum_s=1e9", "num_levels=1"])
@pytest.mark.parametrize("num_blocks", [26876, 301])
def test_with_one_level_or_no_end_of_a_quantum_it_is_fcfs(
    arguments: str, num_blocks: int, seed: int
) -> None:
    fcfs = run("fcfs", seed, num_blocks)
    mlfq = run(f"skip_join_mlfq({arguments})", seed, num_blocks)
    assert bool(fcfs.outcome.num_preemptions) == (num_blocks < 1000)
    assert mlfq.outcome == fcfs.outcome
    assert mlfq.scheduler.events == fcfs.scheduler.events


@pytest.mark.parametrize("seed", SEEDS)
def test_it_beats_fcfs_where_victims_keep_their_kv(seed: int) -> None:
    fcfs, mlfq = run("fcfs", seed).outcome, run("skip_join_mlfq", seed).outcome
    assert mean(mlfq.normalised_s) < 0.8 * mean(fcfs.normalised_s)
    assert fcfs.ttft_s.p50 is not None
    assert mlfq.ttft_s.p50 is not None
    assert mlfq.ttft_s.p50 < 0.25 * fcfs.ttft_s.p50


@pytest.mark.parametrize("seed", SEEDS)
def test_it_loses_to_fcfs_where_victims_compute_again(seed: int) -> None:
    mlfq = run("skip_join_mlfq(mode='recompute')", seed).outcome
    assert mean(mlfq.e2e_s) > 1.5 * mean(run("fcfs", seed).outcome.e2e_s)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_waits_too_long_is_lifted(seed: int) -> None:
    lifted = run("skip_join_mlfq(starvation_s=1.0)", seed).outcome
    never = run("skip_join_mlfq(starvation_s=0)", seed).outcome
    assert lifted.itl_s.max is not None
    assert never.itl_s.max is not None
    assert lifted.itl_s.max < 1.3
    assert never.itl_s.max > 3.0


def starts(policy: str) -> dict[str, float]:
    """When a long prompt and a short one, arriving together in this order, get the only slot."""
    workload = Workload(
        name="two",
        arrivals=[
            Arrival(request_id=name, time=0.0, prompt_len=length, output_len=5)
            for name, length in (("long", 3000), ("short", 20))
        ],
    )
    config = default_config(LATENCY, max_num_seqs=1)
    meter = simulate_policy(workload, [policy], config=config).meter
    names = [ended.arrival.request_id for ended in meter.ended]
    return dict(zip(names, meter.columns["queueing"], strict=True))


def test_a_long_prompt_joins_a_later_level_than_a_short_one() -> None:
    skipping, plain = starts("skip_join_mlfq"), starts("skip_join_mlfq(num_levels=1)")
    assert skipping["short"] == 0.0 < skipping["long"]
    assert plain["long"] == 0.0 < plain["short"]


def short_quanta(more: str = "", **limits: int) -> Bench:
    """Every step ends a quantum."""
    policy = f"skip_join_mlfq(quantum_s=1e-9, factor=1{more})"
    limits = {"budget": 64, "max_num_seqs": 2} | limits
    return bench(("kv_blocks", "chunked_prefill", policy), **limits)


def test_the_one_on_the_last_level_is_paused_for_a_new_one_and_goes_on_later() -> None:
    b = short_quanta()
    b.add("a", 8, 30)
    b.steps(6)
    b.add("b", 8, 30)
    b.step()
    b.add("c", 8, 2)
    assert b.steps(3) == [{"b": 1, "c": 8}, {"b": 1, "c": 1}, {"b": 1, "a": 1}]
    b.add("d", 8, 2)
    assert b.step() == {"b": 1, "d": 8}
    assert b.preempted == ["a", "a"]
    b.finish()


def test_nobody_is_displaced_for_the_budget() -> None:
    b = short_quanta(budget=8, max_num_seqs=4)
    b.add("a", 8, 30)
    b.step()
    b.add("b", 30, 30)
    b.step()
    b.add("c", 4, 2)
    assert b.step() == {"a": 1, "b": 7}
    b.finish()
    assert b.preempted == []


def test_the_clock_of_a_level_starts_anew() -> None:
    clock = VirtualClock()
    stack = ("kv_blocks", "chunked_prefill", "skip_join_mlfq(quantum_s=1.5, starvation_s=0)")
    b = bench(stack, budget=64, max_num_seqs=1, clock=clock)

    def second() -> list[str]:
        output = b.schedule()
        clock.advance(1.0)
        b.update(output)
        return list(output.num_scheduled_tokens)

    b.add("a", 8, 30)
    assert [second(), second()] == [["a"], ["a"]]
    b.add("b", 8, 30)
    assert [second() for _ in range(7)] == [["b"]] * 6 + [["a"]]
    b.finish()


@pytest.mark.parametrize(
    ("mode", "step"), [("recompute", {"b": 40}), ("swap", {"b": 40}), ("keep", {"a": 1})]
)
def test_where_blocks_are_missing_only_a_victim_that_gives_them_up_helps(
    mode: str, step: dict[str, int]
) -> None:
    b = short_quanta(f", mode={mode!r}", blocks=15, max_num_seqs=4)
    b.add("a", 24, 30)
    b.step()
    b.add("b", 40, 10)
    assert b.step() == step
    b.finish()
