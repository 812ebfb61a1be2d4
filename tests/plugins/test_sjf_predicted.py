"""Shortest predicted output first, and its guard against starvation."""

from __future__ import annotations

from functools import cache
from statistics import fmean

import pytest

from framework import VirtualClock
from framework.study.outcome import Outcome
from framework.study.run import default_config, simulate_policy
from framework.study.workload import Arrival, Workload
from tests.plugins.simulated import LATENCY, SEEDS, Digits, mean, simulated
from tests.support import bench

LENGTHS = "n=200,prompt=lognormal(200,0.7),output=lognormal(100,1.0)"


@cache
def outcome(stack: str, arrivals: str, seed: int) -> Outcome:
    return simulated(stack, f"{arrivals},{LENGTHS}", seed, max_num_seqs=16).outcome


def gain(arrivals: str, seed: int) -> float:
    """Mean normalised latency of fcfs over that of sjf with true lengths."""
    fcfs, sjf = outcome("fcfs", arrivals, seed), outcome("oracle+sjf_predicted", arrivals, seed)
    return mean(fcfs.normalised_s) / mean(sjf.normalised_s)


def test_the_gain_grows_with_load() -> None:
    low, middle, high = (
        fmean(gain(f"poisson:rate={rate}", seed) for seed in SEEDS) for rate in (8, 12, 16)
    )
    assert low < 1.1
    assert middle > 1.2 * low
    assert high > 1.5 * middle


def test_the_gain_grows_with_burstiness() -> None:
    smooth, bursty, wild = (
        fmean(gain(f"gamma:rate=9,cv={cv}", seed) for seed in SEEDS) for cv in (1, 2, 4)
    )
    assert smooth < 1.1
    assert bursty > smooth + 0.03
    assert wild > bursty + 0.3


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_of_prediction_cost_a_part_of_the_gain(seed: int) -> None:
    arrivals = "poisson:rate=16"
    fcfs, true, noisy = (
        mean(outcome(stack, arrivals, seed).e2e_s)
        for stack in ("fcfs", "oracle+sjf_predicted", "noisy_oracle(sigma=1.0)+sjf_predicted")
    )
    assert true < noisy < 0.95 * fcfs


@pytest.mark.parametrize("seed", SEEDS)
def test_the_longest_wait_is_the_price(seed: int) -> None:
    fcfs, sjf = (
        outcome(stack, "poisson:rate=16", seed) for stack in ("fcfs", "oracle+sjf_predicted")
    )
    assert fcfs.ttft_s.p99 is not None
    assert sjf.ttft_s.p99 is not None
    assert sjf.ttft_s.p99 > 1.5 * fcfs.ttft_s.p99


def wait_of_long_one(policy: str) -> float:
    """Seconds a long request waits beside short ones that alone are too many for both slots."""
    flood = [
        Arrival(request_id=f"s{number}", time=0.04 * number, prompt_len=20, output_len=10)
        for number in range(400)
    ]
    long = Arrival(request_id="long", time=1.01, prompt_len=20, output_len=100)
    workload = Workload(name="flood", arrivals=[*flood[:26], long, *flood[26:]])
    config = default_config(LATENCY, max_num_seqs=2)
    meter = simulate_policy(workload, ["oracle", policy], config=config).meter
    names = [ended.arrival.request_id for ended in meter.ended]
    return meter.columns["queueing"][names.index("long")]


def test_the_guard_bounds_the_wait() -> None:
    assert wait_of_long_one("sjf_predicted") > 10.0
    assert 1.0 < wait_of_long_one("sjf_predicted(patience_s=1.0)") < 1.3
    assert 3.0 < wait_of_long_one("sjf_predicted(patience_s=3.0)") < 3.3


def test_without_predictions_it_is_fcfs() -> None:
    fcfs, blind = (
        outcome("fcfs", "poisson:rate=16", 0),
        outcome("sjf_predicted", "poisson:rate=16", 0),
    )
    assert blind == fcfs


def test_a_request_that_waited_too_long_is_not_overtaken_where_it_does_not_fit() -> None:
    b = bench(("kv_blocks", "chunked_prefill", "sjf_predicted(patience_s=0)"), blocks=12, budget=64)
    b.add("a", 20, 8)
    b.step()
    b.add("big", 40, 2)
    b.add("small", 4, 2)
    b.finish()
    assert b.first_token_step("big") <= b.first_token_step("small")


def test_known_lengths_come_before_unknown_ones() -> None:
    b = bench(
        ("kv_blocks", "chunked_prefill", Digits(), "sjf_predicted"), budget=64, max_num_seqs=1
    )
    for name in ("unknown", "k90", "k50"):
        b.add(name, 8, 2)
    b.finish()
    starts = [b.first_token_step(name) for name in ("k50", "k90", "unknown")]
    assert starts == sorted(starts)


def test_a_victim_waits_since_it_lost_its_place() -> None:
    clock = VirtualClock()
    clock.advance(100.0)
    policy = "sjf_predicted(patience_s=10)"
    b = bench(("kv_blocks", "chunked_prefill", Digits(), policy), blocks=10, budget=64, clock=clock)
    for name in ("a90", "b80"):
        b.add(name, 16, 20, arrival_time=100.0)
    while not b.preempted:
        b.step()
    b.add("s05", 4, 2, arrival_time=100.0)
    assert b.step() == {"b80": 1, "s05": 4}
    b.finish()


def test_blocks_are_taken_from_the_longest_prediction() -> None:
    stack = "oracle+sjf_predicted"
    load = "poisson:rate=12,n=200,prompt=300,output=lognormal(200,1.0)"
    longest, last = (
        simulated(f"{stack}{chooser}", load, num_blocks=900).outcome
        for chooser in ("", "+victim_lifo")
    )
    assert longest.num_preemptions
    assert longest.num_preemptions != last.num_preemptions
