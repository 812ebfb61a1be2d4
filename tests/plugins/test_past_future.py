"""Admission by the memory peak to come: fewer preemptions, more promises kept."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from framework.study.outcome import Outcome
from plugins.past_future import PastFuture, peak_tokens
from tests.plugins.simulated import SEEDS, simulated
from tests.support import Bench, bench, prompt

LOAD = "poisson:rate=11,n=700,prompt=lognormal(300,0.7),output=lognormal(200,0.9),slo=5/0.05"


@cache
def outcome(policy: str, seed: int) -> Outcome:
    return simulated(policy, LOAD, seed, num_blocks=20_000 // 16 + 1).outcome


@pytest.mark.parametrize("seed", SEEDS)
def test_it_preempts_far_less_than_admission_by_what_fits_now(seed: int) -> None:
    eager, foreseeing = outcome("fcfs", seed), outcome("past_future", seed)
    assert eager.num_preemptions["recompute"] > 20
    assert foreseeing.num_preemptions.get("recompute", 0) < 0.2 * eager.num_preemptions["recompute"]
    assert foreseeing.recompute_tax < 0.2 * eager.recompute_tax


def test_it_loses_less_goodput_under_memory_pressure() -> None:
    eager, foreseeing = (
        [outcome(policy, seed).goodput for seed in SEEDS] for policy in ("fcfs", "past_future")
    )
    assert sum(foreseeing) > 1.15 * sum(eager)
    assert all(after > 0.99 * before for after, before in zip(foreseeing, eager, strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_reserve_it_still_preempts_less(seed: int) -> None:
    eager, foreseeing = outcome("fcfs", seed), outcome("past_future(reserve=0.0)", seed)
    assert foreseeing.num_preemptions["recompute"] < 0.8 * eager.num_preemptions["recompute"]


def test_the_peak_is_what_happens_when_nobody_comes() -> None:
    random = Random(0)
    for _ in range(200):
        requests = [(random.randrange(1, 40), random.randrange(1, 60)) for _ in range(6)]
        outlooks = sorted((-left, size) for left, size in requests)
        assert peak_tokens(outlooks) == max(
            sum(size + step for left, size in requests if left >= step) for step in range(1, 41)
        )


def small(policy: PastFuture, blocks: int = 30) -> Bench:
    return bench(("kv_blocks", "chunked_prefill", "fcfs", policy), blocks=blocks, seed=1)


def learned(policy: PastFuture, length: int, blocks: int = 30) -> Bench:
    """A bench on which a request has ended after so many tokens."""
    b = small(policy, blocks)
    b.add("past", 8, length)
    b.steps(length)
    return b


def test_until_a_request_has_ended_all_are_taken_to_run_to_their_limit() -> None:
    b = small(PastFuture(reserve=0.0))
    b.add("first", 8, 60)
    b.add("second", 8, 60)
    assert list(b.step()) == ["first"]
    b.finish()


def test_it_admits_what_fits_if_lengths_are_as_they_were() -> None:
    b = learned(PastFuture(reserve=0.0), 10)
    for name in ("first", "second", "third"):
        b.add(name, 8, 100)
    assert list(b.step()) == ["first", "second", "third"]


def test_it_refuses_what_would_not_fit_later() -> None:
    b = learned(PastFuture(reserve=0.0), 40)
    for name in ("first", "second", "third"):
        b.add(name, 8, 41)
    assert list(b.step()) == ["first", "second"]
    b.finish()


def test_the_reserve_stays_free() -> None:
    b = learned(PastFuture(reserve=0.3), 40)
    for name in ("first", "second"):
        b.add(name, 8, 41)
    assert list(b.step()) == ["first"]


def test_old_lengths_are_forgotten() -> None:
    b = small(PastFuture(window=1, reserve=0.0))
    for number in range(5):
        b.add(f"long{number}", 8, 100)
    b.steps(500)
    b.add("short", 8, 2)
    b.steps(2)
    for name in ("first", "second", "third"):
        b.add(name, 8, 100)
    assert list(b.step()) == ["first", "second", "third"]


def test_an_aborted_request_teaches_nothing() -> None:
    b = small(PastFuture(reserve=0.0))
    b.add("aborted", 8, 100)
    b.steps(2)
    b.abort("aborted")
    b.add("first", 8, 100)
    b.add("second", 8, 100)
    assert list(b.step()) == ["first"]


def test_one_that_outlived_all_is_given_as_much_again() -> None:
    b = learned(PastFuture(reserve=0.0), 2, blocks=26)
    b.add("one", 8, 60)
    b.add("other", 8, 60)
    b.steps(25)
    b.add("next", 4, 2)
    assert list(b.step()) == ["one", "other"]


def test_a_shared_prefix_counts_once() -> None:
    b = learned(PastFuture(reserve=0.0), 4, blocks=40)
    b.add("first", prompt(60), 8)
    b.step()
    for number in range(3):
        b.add(f"after{number}", [*prompt(59), 500 + number], 8)
    b.steps(3)
    assert len(b.step()) == 4


def test_who_is_alone_runs_whatever_is_foreseen() -> None:
    b = learned(PastFuture(reserve=0.5), 80)
    b.add("large", 80, 8)
    assert list(b.step()) == ["large"]
    b.finish()
