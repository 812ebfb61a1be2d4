"""The highest rate under a promise, and the rate of a server that is never idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from framework.errors import ConfigError, HeadwayError
from framework.study.capacity import Promise, find_capacity, saturated_rate
from framework.study.job import Job
from framework.study.source import Source
from framework.study.study import Study

if TYPE_CHECKING:
    from pathlib import Path

FIXED = "poisson:n=400,prompt=300,output=20"
HALF = """
from framework import hookimpl


class Half:
    @hookimpl
    def pick_rejected(self, waiting):
        return [request for request in waiting if int(request.request_id.partition(".")[0][1:]) % 2]
"""
SPEC = "poisson:rate=8,n=150,prompt=lognormal(600,0.7),output=lognormal(60,0.8)"


def job(policy: str = "fcfs", text: str = SPEC, **limits: Any) -> Job:
    study = Study(policies=(policy,), source=Source(text=text), limits=limits)
    return study.job(policy, 0, None)


def test_the_promise_holds_at_the_capacity_and_not_above_it() -> None:
    found = find_capacity(job("sarathi"), Promise(itl_p99=0.05, queueing_p50=0.5))
    kept = [trial["rate"] for trial in found["trials"] if trial["kept"]]
    broken = [trial["rate"] for trial in found["trials"] if not trial["kept"]]
    assert found["rate"] == max(kept)
    assert found["next_rate"] == min(broken)
    assert 1 < found["next_rate"] / found["rate"] <= 1.02


def test_a_promise_that_never_holds_has_no_rate() -> None:
    found = find_capacity(job(text="poisson:n=9,prompt=40,output=5"), Promise(itl_p99=1e-4))
    assert found["rate"] is None
    assert not any(trial["kept"] for trial in found["trials"])


def test_prefills_that_stall_decodes_cost_capacity_under_a_promise() -> None:
    promise = Promise(itl_p99=0.1)
    stalled, smooth = (
        find_capacity(job(policy), promise)["rate"] for policy in ("prefill_first", "sarathi")
    )
    assert smooth > 1.5 * stalled


@pytest.mark.parametrize(
    ("promise", "kept"),
    [
        (Promise(), True),
        (Promise(itl_p99=0.1), False),
        (Promise(queueing_p50=0.5), False),
        (Promise(ttft_p99=3.0), True),
        (Promise(ttft_p99=1.0), False),
        (Promise(attainment=0.9), True),
        (Promise(attainment=0.99), False),
    ],
)
def test_each_part_of_a_promise_counts(promise: Promise, kept: bool) -> None:
    assert promise.holds(outcome()) is kept


def test_a_policy_that_turns_requests_away_keeps_no_promise() -> None:
    assert not Promise().holds({**outcome(), "reasons": {"stop": 9, "rejected": 1}})


def outcome() -> dict[str, Any]:
    numbers = dict.fromkeys(("count", "mean", "p50", "p90", "p95", "p99", "max"), 0.1)
    names = ("tpot_s", "e2e_s", "normalised_s", "longest_gap_s", "itl_s")
    singles = ("goodput", "output_tokens_per_s", "recompute_tax", "prefix_hit_rate", "jain")
    return {
        **dict.fromkeys(names, numbers),
        **dict.fromkeys((*singles, "service_gap", "mean_kv_use", "mean_running"), 0.5),
        "itl_s": {**numbers, "p99": 0.15},
        "queueing_s": {**numbers, "p50": 1.0},
        "ttft_s": {**numbers, "p99": 2.0},
        "attainment": 0.95,
        "num_preemptions": {},
        "reasons": {"stop": 9, "length": 1},
    }


def test_the_saturated_rate_is_the_same_for_few_and_for_many_requests() -> None:
    rates = [saturated_rate(job(text=SPEC.replace("n=150", n)))["rate"] for n in ("n=150", "n=900")]
    assert rates[0] == pytest.approx(rates[1], rel=0.1)


def test_a_smaller_server_has_a_smaller_saturated_rate() -> None:
    small, large = (saturated_rate(job(max_num_seqs=seats))["rate"] for seats in (4, 64))
    assert small < 0.6 * large


def test_the_saturated_rate_counts_who_is_served(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HALF)
    rate = saturated_rate(job(f"{tmp_path}/mine.py:Half", FIXED))["rate"]
    assert rate == pytest.approx(saturated_rate(job(text=FIXED))["rate"], rel=0.1)


def test_a_server_that_takes_nobody_has_no_capacity_and_says_why() -> None:
    with pytest.raises(HeadwayError, match="nobody was served: request 'r0"):
        saturated_rate(job(max_model_len=2))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_promise_is_of_seconds_above_0(seconds: float) -> None:
    with pytest.raises(ConfigError, match="itl_p99: got"):
        Promise(itl_p99=seconds)


def test_an_attainment_needs_slos() -> None:
    with pytest.raises(ConfigError, match="no request of the workload has an SLO"):
        find_capacity(job(), Promise(attainment=0.9))


def test_requests_that_come_at_once_have_no_rate_to_vary() -> None:
    with pytest.raises(ConfigError, match="no rate that could be varied"):
        find_capacity(job(text="closed:users=4,n=20,think=exponential(3)"), Promise())
