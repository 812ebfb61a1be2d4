"""Earliest deadline first: it wins below saturation and loses beyond it."""

from __future__ import annotations

from functools import cache
from statistics import mean

import pytest

from framework import Slo
from tests.plugins.simulated import SEEDS, simulated
from tests.support import Bench, bench

BELOW, BEYOND = 8.5, 18
"""Requests a second; the machine with 32 slots saturates at 9.3."""


@cache
def attainment(policy: str, rate: float, seed: int) -> float:
    spec = f"poisson:rate={rate},n=600,prompt=500,output=lognormal(220,0.7),slo=1/-|20/-"
    found = simulated(policy, spec, seed, max_num_seqs=32).outcome.attainment
    assert found is not None
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_below_saturation_it_keeps_almost_every_promise(seed: int) -> None:
    assert attainment("slo_edf", BELOW, seed) > 0.95
    assert attainment("slo_edf", BELOW, seed) > attainment("fcfs", BELOW, seed)


def test_below_saturation_it_beats_fcfs_by_far() -> None:
    edf, fcfs = (
        mean(attainment(policy, BELOW, seed) for seed in SEEDS) for policy in ("slo_edf", "fcfs")
    )
    assert edf > fcfs + 0.15


@pytest.mark.parametrize("seed", SEEDS)
def test_beyond_saturation_it_is_late_for_everybody_in_turn(seed: int) -> None:
    assert attainment("slo_edf", BEYOND, seed) < 0.6 * attainment("fcfs", BEYOND, seed)


def edf(**limits: int) -> Bench:
    return bench(("kv_blocks", "chunked_prefill", "slo_edf"), **limits)


def test_who_is_due_first_is_served_first_and_who_has_no_promise_last() -> None:
    b = edf(max_num_seqs=1)
    b.add("none", 8)
    b.add("late", 8, slo=Slo(ttft_s=20.0))
    b.add("soon", 8, arrival_time=5.0, slo=Slo(ttft_s=1.0))
    b.add("given", 8, arrival_time=6.0, deadline=3.0)
    order = [name for step in b.steps(4) for name in step]
    assert order == ["given", "soon", "late", "none"]


def test_equal_deadlines_go_by_arrival() -> None:
    b = edf(max_num_seqs=1)
    b.add("second", 8, arrival_time=2.0, deadline=9.0)
    b.add("first", 8, arrival_time=1.0, deadline=9.0)
    assert list(b.step()) == ["first"]


def test_the_victim_is_who_is_due_last() -> None:
    b = edf(blocks=8)
    b.add("soon", 8, 16, deadline=1.0)
    b.add("late", 8, 16, deadline=20.0)
    b.add("soonest", 8, 16, deadline=0.5)
    b.finish()
    assert b.preempted[0] == "late"


def test_a_running_request_is_due_when_its_next_token_is() -> None:
    b = edf(blocks=8)
    b.add("slow", 8, 16, deadline=1.0, slo=Slo(tpot_s=5.0))
    b.add("fast", 8, 16, deadline=2.0, slo=Slo(tpot_s=0.1))
    b.finish()
    assert b.preempted == ["slow"]


def test_an_urgent_prompt_under_way_goes_before_decodes_with_time_to_spare() -> None:
    b = edf(budget=16)
    b.add("decodes", 8, 20, deadline=1.0, slo=Slo(tpot_s=5.0))
    b.step()
    b.add("prompt", 40, 2, deadline=3.0)
    assert b.steps(2) == [{"decodes": 1, "prompt": 15}, {"prompt": 16}]
    b.finish()
