"""Service of tenants: what counts, between whom, and over which times."""

from __future__ import annotations

import pytest

from framework.latency import load_latency
from framework.study.fairness import Service
from framework.study.run import DEFAULT_LATENCY, default_config, simulate_policy
from framework.study.synthetic import make_workload


def steps(service: Service, count: int) -> None:
    for _ in range(count):
        service.outputs()
        service.advance()


def backlogged(*tenants: str, weights: dict[str, float] | None = None) -> Service:
    service = Service(weights or {})
    for tenant in tenants:
        service.waits(tenant, 1)
    return service


def test_a_prompt_token_counts_one_and_an_output_token_two() -> None:
    service = Service({})
    service.prompt("a", 100)
    service.gives("a", 3)
    steps(service, 10)
    assert service.totals == {"a": 100 + 2 * 3 * 10}


def test_service_is_divided_by_the_weight() -> None:
    service = Service({"a": 4.0})
    for tenant in "ab":
        service.prompt(tenant, 100)
        service.gives(tenant, 1)
    steps(service, 50)
    assert service.totals == {"a": 50.0, "b": 200.0}


def test_who_ceased_to_give_gets_no_more() -> None:
    service = Service({})
    service.gives("a", 2)
    steps(service, 5)
    service.gives("a", -1)
    steps(service, 5)
    assert service.totals == {"a": 2 * (2 * 5 + 5)}


def test_the_gap_is_the_largest_over_any_interval_not_the_last_difference() -> None:
    service = backlogged("a", "b")
    service.prompt("a", 700)
    steps(service, 1)
    service.prompt("b", 1000)
    steps(service, 1)
    service.prompt("a", 300)
    steps(service, 1)
    assert service.gap == 1000


def test_the_gap_counts_no_service_from_before_both_were_backlogged() -> None:
    service = backlogged("a")
    service.prompt("a", 5000)
    steps(service, 3)
    service.waits("b", 1)
    service.prompt("a", 10)
    steps(service, 1)
    assert service.gap == 10


def test_an_interval_ends_when_one_of_the_two_waits_no_more() -> None:
    service = backlogged("a", "b")
    service.prompt("a", 40)
    service.waits("b", -1)
    service.prompt("a", 5000)
    steps(service, 2)
    service.waits("b", 1)
    service.prompt("b", 30)
    steps(service, 1)
    assert service.gap == 40


def test_the_service_of_the_last_step_before_an_interval_ends_counts() -> None:
    service = backlogged("a", "b")
    service.gives("a", 1)
    steps(service, 10)
    service.waits("a", -1)
    assert service.gap == 20


def test_the_gap_of_three_is_that_of_the_two_who_are_furthest_apart() -> None:
    service = backlogged("a", "b", "c")
    service.prompt("a", 100)
    service.prompt("c", 350)
    steps(service, 1)
    assert service.gap == 350


def test_jain_is_one_for_equal_shares_and_falls_to_one_half_when_one_of_two_gets_all() -> None:
    equal, lopsided = backlogged("a", "b"), backlogged("a", "b")
    for service, shares in ((equal, "ab"), (lopsided, "a")):
        for tenant in shares:
            service.gives(tenant, 1)
        steps(service, 20)
    assert equal.jain == pytest.approx(1.0)
    assert lopsided.jain == pytest.approx(0.5)


def test_jain_counts_weighted_service() -> None:
    service = backlogged("a", "b", weights={"a": 3.0})
    service.gives("a", 3)
    service.gives("b", 1)
    steps(service, 20)
    assert service.jain == pytest.approx(1.0)


def test_jain_leaves_out_who_had_nothing_waiting() -> None:
    service = backlogged("a", "b")
    for tenant in "abc":
        service.gives(tenant, {"a": 5, "b": 5, "c": 1}[tenant])
    steps(service, 20)
    assert service.jain == pytest.approx(1.0)


def test_jain_leaves_out_what_one_got_while_alone() -> None:
    service = backlogged("a", "b")
    service.gives("a", 1)
    service.gives("b", 1)
    steps(service, 20)
    service.waits("b", -1)
    service.gives("b", -1)
    service.gives("a", 10)
    steps(service, 100)
    assert service.jain == pytest.approx(1.0)


def test_a_tenant_counts_by_the_steps_in_which_it_competed() -> None:
    service = backlogged("a", "b")
    service.gives("a", 1)
    service.gives("b", 1)
    steps(service, 98)
    service.waits("c", 1)
    steps(service, 2)
    service.waits("c", -1)
    assert service.jain == pytest.approx(200 / 202)


def test_nobody_competed_so_there_is_no_index() -> None:
    service = backlogged("a")
    service.prompt("a", 10)
    service.prompt("b", 10)
    steps(service, 5)
    assert service.jain is None
    assert service.gap == 0


def test_requests_without_a_tenant_are_nobodys_service() -> None:
    service = Service({})
    service.waits(None, 1)
    service.prompt(None, 10)
    service.gives(None, 1)
    steps(service, 1)
    assert service.totals == {}


def test_with_many_tenants_the_gap_is_right_to_the_service_of_a_few_steps() -> None:
    names = [f"t{number}" for number in range(40)]
    service = backlogged(*names)
    service.gives("t0", 1)
    steps(service, 1000)
    service.gives("t0", -1)
    for name in names[1:]:
        service.gives(name, 1)
    steps(service, 1000)
    assert 1800 <= service.gap <= 2000


def test_a_paused_request_that_loses_its_blocks_waits_once() -> None:
    workload = make_workload("poisson:rate=20,n=60,prompt=64,output=lognormal(100,1),tenants=a|b")
    limits = {"max_num_seqs": 4, "num_blocks": 40, "max_model_len": 600}
    config = default_config(load_latency(DEFAULT_LATENCY), **limits)
    run = simulate_policy(workload, ["oracle", "srpt(limit=1)"], config=config)
    assert run.outcome.num_preemptions.keys() == {"keep", "recompute"}
    assert [tenant.num_waiting for tenant in run.meter.service.tenants.values()] == [0, 0]
