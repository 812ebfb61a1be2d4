"""Shortest remaining first: what preemption is worth depends on what it costs."""

from __future__ import annotations

from functools import cache

import pytest

from framework.study.outcome import Outcome
from tests.plugins.simulated import SEEDS, Digits, mean, simulated
from tests.support import Bench, bench

LOAD = "poisson:rate=9,n=300,prompt=lognormal(800,0.7),output=lognormal(100,1.2)"


@cache
def outcome(stack: str, seed: int) -> Outcome:
    return simulated(stack, LOAD, seed, max_num_seqs=16).outcome


@pytest.mark.parametrize("seed", SEEDS)
def test_it_beats_fcfs_where_victims_keep_their_kv(seed: int) -> None:
    fcfs, srpt = outcome("fcfs", seed), outcome("oracle+srpt(limit=1.0)", seed)
    assert srpt.num_preemptions["keep"] > 20
    assert mean(srpt.e2e_s) < 0.95 * mean(fcfs.e2e_s)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_loses_to_fcfs_where_victims_compute_again(seed: int) -> None:
    fcfs, srpt = outcome("fcfs", seed), outcome("oracle+srpt(limit=1.0,mode='recompute')", seed)
    assert mean(srpt.e2e_s) > 1.1 * mean(fcfs.e2e_s)
    assert srpt.recompute_tax > 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_without_preemption_it_is_shortest_job_first(seed: int) -> None:
    assert outcome("oracle+srpt(limit=0)", seed) == outcome("oracle+sjf_predicted", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_limit_preempts_less(seed: int) -> None:
    plain, limited = (
        outcome(f"oracle+srpt(limit={limit})", seed).num_preemptions["keep"] for limit in (1.0, 0.2)
    )
    assert limited < plain


def one_slot(policy: str, **limits: int) -> Bench:
    limits = {"max_num_seqs": 1, "budget": 64} | limits
    return bench(("kv_blocks", "chunked_prefill", Digits(), policy), **limits)


def test_who_has_the_most_remaining_gives_its_place() -> None:
    b = one_slot("srpt(limit=1.0)", max_num_seqs=2)
    for name, most in (("a30", 30), ("b20", 20)):
        b.add(name, 8, most)
    b.step()
    b.add("c10", 8, 10)
    assert b.step() == {"b20": 1, "c10": 8}
    assert b.preempted == ["a30"]
    b.finish()


def test_what_it_has_given_counts_not_what_it_was_to_give() -> None:
    b = one_slot("srpt(limit=1.0)")
    b.add("a30", 8, 30)
    b.steps(25)
    b.add("c10", 8, 10)
    assert b.step() == {"a30": 1}
    b.finish()


def test_beyond_its_limit_a_request_keeps_its_place() -> None:
    b = one_slot("srpt(limit=0.1)")
    b.add("a30", 8, 30)
    b.steps(3)
    b.add("c10", 8, 10)
    b.step()
    assert b.preempted == []
    b.finish()


@pytest.mark.parametrize(
    ("mode", "step"), [("recompute", {"c10": 40}), ("swap", {"c10": 40}), ("keep", {"a30": 1})]
)
def test_where_blocks_are_missing_only_a_victim_that_gives_them_up_helps(
    mode: str, step: dict[str, int]
) -> None:
    b = one_slot(f"srpt(limit=1.0, mode={mode!r})", max_num_seqs=4, blocks=15)
    b.add("a30", 24, 30)
    b.step()
    b.add("c10", 40, 10)
    assert b.step() == step
    b.finish()


def test_nobody_is_displaced_where_that_would_not_make_room() -> None:
    b = one_slot("srpt(limit=1.0, mode='recompute')", max_num_seqs=4, blocks=15)
    b.add("a3", 40, 5)
    b.add("b30", 8, 12)
    b.step()
    b.add("c2", 32, 2)
    b.step()
    assert b.preempted == []
    b.finish()


def test_nobody_is_displaced_for_the_budget() -> None:
    b = one_slot("srpt(limit=1.0)", max_num_seqs=4, budget=8)
    b.add("a30", 8, 30)
    b.step()
    b.add("b30", 30, 30)
    b.step()
    b.add("c2", 4, 2)
    assert b.step() == {"a30": 1, "b30": 7}
    b.finish()
    assert b.preempted == []


def test_where_blocks_run_out_the_most_remaining_gives_way() -> None:
    b = one_slot("srpt(limit=1.0)", max_num_seqs=4, blocks=10)
    for name, most in (("a20", 20), ("b10", 10)):
        b.add(name, 16, most)
        b.step()
    while not b.preempted:
        b.step()
    assert b.preempted == ["a20"]
    b.finish()
