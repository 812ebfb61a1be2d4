"""Predictors: oracles are told and say so; history is learned from what has ended."""

from __future__ import annotations

import math
from statistics import fmean, pstdev

import pytest
from attrs import define, field

from framework import Request
from framework.study.run import simulate_policy
from framework.study.synthetic import make_workload
from plugins.history_quantile import HistoryQuantile
from plugins.oracle import NoisyOracle, Oracle
from tests.plugins.simulated import SEEDS, mean, simulated
from tests.support import Bench, bench


def new(name: str, prompt_len: int = 8, tenant: str | None = None) -> Request:
    return Request(name, [7] * prompt_len, tenant=tenant)


def test_an_oracle_predicts_what_it_was_told_and_nothing_else() -> None:
    oracle = Oracle()
    oracle.expect("a", 17)
    assert oracle.predict_output_len(new("a")) == 17.0
    assert oracle.predict_output_len(new("b")) is None


def test_a_run_names_those_that_were_told() -> None:
    load = "poisson:n=3,output=5"
    assert simulated("oracle+noisy_oracle+sjf_predicted", load).oracles == (
        "oracle",
        "noisy_oracle",
    )
    assert simulated("history_quantile+sjf_predicted", load).oracles == ()


@define(eq=False)
class Listener(Oracle):
    """Keeps what it is told."""

    told: list[tuple[str, int]] = field(factory=list)

    def expect(self, request_id: str, num_output_tokens: int) -> None:
        self.told.append((request_id, num_output_tokens))


def test_a_study_tells_every_true_length() -> None:
    workload, listener = make_workload("poisson:n=20"), Listener()
    simulate_policy(workload, [listener, "sjf_predicted"])
    assert listener.told == [(one.request_id, one.output_len) for one in workload.arrivals]


def test_noise_is_log_normal_with_the_sigma_asked_for() -> None:
    oracle = NoisyOracle(sigma=0.5)
    names = [f"r{number}" for number in range(2000)]
    for name in names:
        oracle.expect(name, 100)
    logs = [math.log((oracle.predict_output_len(new(name)) or 0) / 100) for name in names]
    assert abs(fmean(logs)) < 0.05
    assert 0.45 < pstdev(logs) < 0.55


def test_noise_depends_on_the_request_and_not_on_who_came_before() -> None:
    one, other = NoisyOracle(), NoisyOracle()
    for name in "abc":
        one.expect(name, 100)
    for name in "cab":
        other.expect(name, 100)
    assert [one.predict_output_len(new(name)) for name in "abc"] == [
        other.predict_output_len(new(name)) for name in "abc"
    ]


def ended(history: HistoryQuantile, lengths: dict[str, list[int]]) -> Bench:
    """{tenant: lengths}: requests of these lengths have ended."""
    b = bench(("kv_blocks", "chunked_prefill", "fcfs", history), blocks=200)
    for tenant, counts in lengths.items():
        for number, count in enumerate(counts):
            b.add(f"{tenant}{number}", 8, count, tenant=tenant)
    b.finish()
    return b


def test_history_predicts_a_quantile_of_the_lengths_seen() -> None:
    lengths = {"a": [10, 20, 30, 40]}
    for quantile, expected in ((0.0, 10), (0.5, 30), (0.9, 40), (1.0, 40)):
        history = HistoryQuantile(quantile=quantile, least=4)
        ended(history, lengths)
        assert history.predict_output_len(new("x")) == expected


def test_history_leaves_out_lengths_that_the_request_has_outlived() -> None:
    history = HistoryQuantile(quantile=0.0, least=1)
    b = ended(history, {"a": [3, 6, 9]})
    running = b.add("x", 8, 30)
    found = {}
    while not running.is_finished:
        found[running.num_output_tokens] = history.predict_output_len(running)
        b.step()
    assert [found[count] for count in (0, 2, 3, 5, 6, 8, 9, 20)] == [3, 3, 6, 6, 9, 9, 10, 21]


def test_history_says_nothing_before_it_has_seen_enough() -> None:
    history = HistoryQuantile(least=4)
    ended(history, {"a": [10, 20, 30]})
    assert history.predict_output_len(new("x")) is None


def test_history_leaves_out_requests_that_were_aborted() -> None:
    history = HistoryQuantile(least=1)
    b = ended(history, {})
    b.add("a", 8, 30)
    b.steps(3)
    b.abort("a")
    assert history.predict_output_len(new("x")) is None


def test_history_of_a_tenant_counts_for_that_tenant_once_it_is_long_enough() -> None:
    history = HistoryQuantile(quantile=0.5, least=2, group="tenant")
    ended(history, {"a": [3, 3, 3, 3], "b": [30, 30], "c": [9]})
    found = {name: history.predict_output_len(new("x", tenant=name)) for name in "abc"}
    assert found == {"a": 3, "b": 30, "c": 3}


def test_history_forgets_what_is_beyond_its_window() -> None:
    history = HistoryQuantile(quantile=0.0, least=1, window=2)
    b = ended(history, {"a": [2]})
    for name, count in (("b", 20), ("c", 30)):
        b.add(name, 8, count)
    b.finish()
    assert history.predict_output_len(new("x")) == 20


@pytest.mark.parametrize("seed", SEEDS)
def test_history_by_tenant_is_worth_something_where_tenants_differ(seed: int) -> None:
    lengths = "prompt=lognormal(200,0.7)"
    load = (
        f"poisson:rate=16,n=400,tenants=short,output=lognormal(20,0.5),{lengths}"
        f" + poisson:rate=4,n=100,tenants=long,output=lognormal(400,0.5),{lengths}"
    )
    fcfs, learned = (
        simulated(stack, load, seed, max_num_seqs=16).outcome
        for stack in ("fcfs", "history_quantile(group='tenant')+sjf_predicted")
    )
    assert mean(learned.e2e_s) < 0.9 * mean(fcfs.e2e_s)
