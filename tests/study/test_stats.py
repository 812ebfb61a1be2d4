"""Means over seeds, paired differences, thinned curves, and rankings that survive or do not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from framework.latency import TERMS, load_latency
from framework.study.curves import quantiles, service_over_time, thinned
from framework.study.run import simulate_policy
from framework.study.sensitivity import judge_ranking, variations
from framework.study.stats import (
    METRICS,
    Estimate,
    best_of,
    pair_runs,
    summarise_runs,
    t_quantile,
)
from framework.study.synthetic import make_workload


@pytest.mark.parametrize(
    ("freedom", "known"),
    [(1, 12.7062), (4, 2.7764), (9, 2.2622), (11, 2.20099), (29, 2.04523), (120, 1.97993)],
)
def test_t_quantiles_are_those_of_the_tables(freedom: int, known: float) -> None:
    assert t_quantile(freedom) == pytest.approx(known, abs=2e-4)


def test_an_interval_is_the_textbook_one() -> None:
    found = Estimate.of([1.0, 2.0, 3.0, 4.0])
    half = 3.1824 * math.sqrt(5 / 3) / 2
    assert found.mean == 2.5
    assert (found.low, found.high) == (pytest.approx(2.5 - half), pytest.approx(2.5 + half))


def test_one_seed_has_no_interval() -> None:
    assert Estimate.of([3.0]).low is None


def outcome(**values: float) -> dict[str, Any]:
    """An outcome with these metrics, and 7 in all others."""
    found: dict[str, Any] = {}
    for metric in METRICS:
        inner = found
        for key in metric.path[:-1]:
            inner = inner.setdefault(key, {"count": 500})
        inner[metric.path[-1]] = values.get(metric.name, 7.0)
    return found


def run(policy: str, seed: int, **values: float) -> dict[str, Any]:
    return {"policy": policy, "seed": seed, "load": None, "outcome": outcome(**values)}


def test_differences_are_taken_seed_by_seed() -> None:
    runs = [run("a", seed, e2e_mean=100.0 * seed) for seed in range(4)]
    runs += [run("b", seed, e2e_mean=100.0 * seed - 1) for seed in range(4)]
    (pair,) = pair_runs(runs)
    assert (pair["policy"], pair["baseline"]) == ("b", "a")
    found = pair["metrics"]["e2e_mean"]
    assert (found["mean"], found["low"], found["high"]) == (-1, -1, -1)
    alone = summarise_runs(runs)[1]["metrics"]["e2e_mean"]
    assert alone["high"] - alone["low"] > 100


def test_a_run_that_failed_is_left_out_of_its_pair() -> None:
    runs = [run("a", 0, e2e_mean=5), run("a", 1, e2e_mean=9), run("b", 1, e2e_mean=7)]
    runs.append({"policy": "b", "seed": 0, "load": None, "error": "no"})
    (pair,) = pair_runs(runs)
    assert pair["metrics"]["e2e_mean"]["n"] == 1
    assert pair["metrics"]["e2e_mean"]["mean"] == -2


def test_percentiles_come_with_their_sample_count() -> None:
    summary = summarise_runs([run("a", 0), run("a", 1)])
    assert summary[0]["metrics"]["ttft_p99"]["samples"] == 500
    assert summary[0]["metrics"]["goodput"]["samples"] is None


def test_each_coefficient_is_varied_both_ways_alone() -> None:
    latency = load_latency("llama3-8b-a100")
    found = variations(latency)
    assert len(found) == 2 * len(TERMS)
    for term, factor, model in found:
        changed = [each for each in TERMS if getattr(model, each) != getattr(latency, each)]
        assert changed == [term]
        assert getattr(model, term) == pytest.approx(factor * getattr(latency, term))


def test_a_ranking_is_lost_only_where_a_clear_order_turns() -> None:
    base = {"a": outcome(e2e_mean=10), "b": outcome(e2e_mean=12), "c": outcome(e2e_mean=12.05)}
    turned = {"a": outcome(e2e_mean=11), "b": outcome(e2e_mean=10), "c": outcome(e2e_mean=9.99)}
    calm = {"a": outcome(e2e_mean=9), "b": outcome(e2e_mean=9.05), "c": outcome(e2e_mean=8.99)}
    found = judge_ranking(base, [("token_ms", 0.8, calm), ("base_ms", 1.2, turned)])
    assert found["e2e_mean"]["ranking"] == ["a", "b", "c"]
    assert found["e2e_mean"]["survives"] is False
    assert [each["pair"] for each in found["e2e_mean"]["turned"]] == [["a", "b"], ["a", "c"]]
    assert found["ttft_p99"]["survives"] is True


def test_thinned_points_keep_both_ends() -> None:
    assert thinned(range(1000), 5) == [0, 250, 500, 749, 999]
    assert thinned(range(3), 5) == [0, 1, 2]


def test_shares_rise_to_one() -> None:
    found = quantiles([3.0, float("nan"), 1.0, 2.0])
    assert found == [(1.0, pytest.approx(1 / 3)), (2.0, pytest.approx(2 / 3)), (3.0, 1.0)]


def test_service_over_time_ends_where_the_meter_does() -> None:
    workload = make_workload("poisson:rate=5,n=80,prompt=200,output=30,tenants=a*3|b,weights=1|2")
    done = simulate_policy(workload, tenant_weights=workload.tenant_weights)
    curves = service_over_time(done.meter)
    assert curves["time_s"][-1] == pytest.approx(done.outcome.duration_s)
    for tenant, line in curves["by_tenant"].items():
        assert line == sorted(line)
        assert line[-1] == pytest.approx(done.outcome.service[tenant], rel=1e-6)


def test_the_best_is_named_with_its_equals_and_with_a_doubt_where_seeds_disagree() -> None:
    steady = [run("a", seed, e2e_mean=100.0 * seed) for seed in range(4)]
    later = [run("b", seed, e2e_mean=100.0 * seed + 1) for seed in range(4)]
    mixed = [run("c", seed, e2e_mean=100.0 * seed + (9 if seed % 2 else -8)) for seed in range(4)]
    assert best_of(steady + later, "e2e_mean", None) == (["a"], 150.0, True)
    assert best_of(steady + later + mixed, "e2e_mean", None) == (["a"], 150.0, False)
    twin = [{**each, "policy": "twin"} for each in steady]
    assert best_of(steady + twin, "e2e_mean", None) == (["a", "twin"], 150.0, True)
    assert best_of(steady[:1] + later[:1], "e2e_mean", None) == (["a"], 0.0, True)
    assert best_of([], "e2e_mean", None) is None
