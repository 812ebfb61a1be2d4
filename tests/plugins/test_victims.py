"""Who gives blocks back when they run out, with any policy beneath."""

from __future__ import annotations

from functools import cache

import pytest

from framework.study.run import Run
from tests.plugins.simulated import SEEDS, mean, simulated
from tests.support import bench

LOAD = "poisson:rate=12,n=400,prompt=lognormal(300,0.7),output=lognormal(200,0.7),max_len=4000"
BLOCKS = 20_000 // 16 + 1
CHOOSERS = ("victim_lifo", "victim_lowest_priority", "victim_least_computed", "victim_cost_aware")

POLICIES = (
    "priority",
    "prefill_first",
    "sarathi",
    "oracle+sjf_predicted",
    "oracle+srpt",
    "skip_join_mlfq",
)


@cache
def run(stack: str, seed: int) -> Run:
    return simulated(stack, LOAD, seed, num_blocks=BLOCKS)


def num_lost(stack: str, seed: int) -> int:
    return run(stack, seed).scheduler.counters.num_lost_tokens


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("chooser", ["victim_least_computed", "victim_cost_aware"])
def test_fewer_tokens_are_computed_again_than_with_lifo(chooser: str, seed: int) -> None:
    lifo, chosen = run("victim_lifo", seed).outcome, run(chooser, seed).outcome
    assert lifo.num_preemptions["recompute"] > 30
    assert num_lost(chooser, seed) < 0.8 * num_lost("victim_lifo", seed)
    assert chosen.recompute_tax < 0.8 * lifo.recompute_tax
    assert mean(chosen.e2e_s) < mean(lifo.e2e_s)


@pytest.mark.parametrize("seed", SEEDS)
def test_lifo_is_what_fcfs_does(seed: int) -> None:
    assert run("victim_lifo", seed).outcome == run("fcfs", seed).outcome


@pytest.mark.parametrize("chooser", CHOOSERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_chooser_goes_with_every_policy(policy: str, chooser: str) -> None:
    load = "poisson:rate=12,n=60,prompt=lognormal(300,0.7),output=200,priority=0|1"
    outcome = simulated(f"{policy}+{chooser}", load, num_blocks=400).outcome
    assert outcome.reasons == {"stop": 60}
    assert outcome.num_preemptions["recompute"] > 0


def victim(chooser: str) -> str:
    """Who loses its place when old (big), young (small) and urgent (between) run out of blocks."""
    b = bench(("kv_blocks", "chunked_prefill", "fcfs", chooser), blocks=16, budget=64)
    b.add("old", 20, 16, priority=2)
    b.add("young", 6, 40, priority=1)
    b.add("late", 14, 40, priority=0)
    while not b.preempted:
        b.step()
    b.finish()
    return b.preempted[0]


def test_each_chooser_takes_its_own() -> None:
    chosen = {chooser: victim(chooser) for chooser in CHOOSERS}
    assert chosen == {
        "victim_lifo": "late",
        "victim_lowest_priority": "old",
        "victim_least_computed": "young",
        "victim_cost_aware": "young",
    }


def test_cost_aware_spares_the_one_that_is_near_its_end() -> None:
    b = bench(("kv_blocks", "chunked_prefill", "fcfs", "victim_cost_aware"), blocks=10, budget=64)
    b.add("begins", 16, 24)
    b.add("ends", 13, 8)
    while not b.preempted:
        b.step()
    assert b.preempted == ["begins"]
    b.finish()
