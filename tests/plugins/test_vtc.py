"""Fair shares: the bound of the paper, return from idle, floods, weights, charges."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest
from attrs import define, field

from framework import (
    PolicyError,
    Request,
    SchedulerConfig,
    SchedulerOutput,
    Setup,
    StepView,
    WaitingView,
    hookimpl,
)
from framework.study.outcome import Outcome
from framework.study.run import Run, default_config, simulate_policy
from framework.study.synthetic import make_workload
from framework.testing import make_requests, simulate
from plugins.vtc import Vtc
from tests.plugins.simulated import LATENCY, SEEDS, mean
from tests.support import Bench, bench

KV_TOKENS = 20_000
BOUND = 2 * max(1 * 256, 2 * KV_TOKENS)
SIZES = "prompt=256,output=256"
BACKLOGGED = f"poisson:rate=12,n=1000,tenants=a,{SIZES} + poisson:rate=24,n=2000,tenants=b,{SIZES}"
FLOOD = f"poisson:rate=0.8,n=40,tenants=calm,{SIZES} + poisson:rate=30,n=1500,tenants=flood,{SIZES}"
CALM = f"poisson:rate=0.8,n=40,tenants=calm,{SIZES}"


def run(plugins: list[object], spec: str, seed: int, horizon: float | None = None) -> Run:
    config = default_config(LATENCY, num_blocks=KV_TOKENS // 16 + 1)
    return simulate_policy(make_workload(spec, seed=seed), plugins, config=config, horizon=horizon)


@cache
def backlogged(policy: str, seed: int) -> Outcome:
    return run([policy], BACKLOGGED, seed, horizon=80).outcome


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gap_of_two_backlogged_tenants_is_under_its_bound_where_that_of_fcfs_is_far_over(
    seed: int,
) -> None:
    assert backlogged("vtc", seed).service_gap < 0.75 * BOUND
    assert backlogged("fcfs", seed).service_gap > 2 * BOUND


@pytest.mark.parametrize("seed", SEEDS)
def test_backlogged_tenants_get_even_service_at_no_loss_of_throughput(seed: int) -> None:
    fcfs, vtc = backlogged("fcfs", seed), backlogged("vtc", seed)
    assert vtc.jain is not None and fcfs.jain is not None
    assert vtc.jain > 0.995
    assert fcfs.jain < 0.93
    assert vtc.output_tokens_per_s > 0.98 * fcfs.output_tokens_per_s


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tenant_below_its_share_hardly_notices_a_flood(seed: int) -> None:
    def wait(policy: str, spec: str) -> float:
        return mean(run([policy], spec, seed, horizon=40).outcome.ttft_by_tenant_s["calm"])

    alone, fcfs, vtc = wait("vtc", CALM), wait("fcfs", FLOOD), wait("vtc", FLOOD)
    assert vtc < alone + 0.5
    assert fcfs > 10 * vtc


@pytest.mark.parametrize("seed", SEEDS)
def test_service_is_in_proportion_to_weights(seed: int) -> None:
    service = run(["vtc(weights={'a': 2.0})"], BACKLOGGED, seed, horizon=40).outcome.service
    assert 1.6 < service["a"] / service["b"] < 2.4


@define(eq=False)
class NobodyIsLeftOut:
    """Fails where somebody waits beside a free slot and budget, and nobody was refused."""

    _waiting: WaitingView = field(init=False)

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        self._waiting = setup.waiting

    @hookimpl
    def step_planned(self, output: SchedulerOutput, step: StepView) -> None:
        is_full = output.preempted_req_ids or not step.slots_left or not step.budget_left
        assert step.refused or is_full or not len(self._waiting)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_never_idles_while_somebody_could_be_admitted(seed: int) -> None:
    run([Vtc(), NobodyIsLeftOut()], BACKLOGGED, seed, horizon=15)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_token_is_charged_once_whatever_is_computed_again(seed: int) -> None:
    vtc = Vtc()
    outcome = run([vtc], f"closed:users=200,n=200,tenants=a|b,{SIZES}", seed).outcome
    assert outcome.num_preemptions["recompute"] > 10
    assert vtc.counters == outcome.service


@define(eq=False)
class FailsOnce:
    """Makes the first plan be dropped."""

    has_failed: bool = False

    @hookimpl
    def step_planned(self) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("once")


def due(requests: Iterable[Request]) -> float:
    return sum(request.num_prompt_tokens + 2 * request.num_output_tokens for request in requests)


def test_tokens_in_flight_at_a_preemption_are_charged_too() -> None:
    vtc = Vtc()
    requests = make_requests(12, prompt_len=[5, 9], max_tokens=20, tenant="a")
    config = SchedulerConfig(block_size=4, num_blocks=16, async_scheduling=True)
    trace = simulate(("kv_blocks", "chunked_prefill", "fcfs", vtc), requests, config)
    assert trace.preempted
    assert vtc.counters == {"a": due(requests)}


def test_a_plan_that_was_dropped_is_charged_once() -> None:
    vtc = Vtc()
    b = bench(("kv_blocks", "chunked_prefill", "fcfs", vtc, FailsOnce()))
    add(b, "a0", "b0")
    with pytest.raises(PolicyError):
        b.schedule()
    b.finish()
    assert vtc.counters == {"a": 8 + 2, "b": 8 + 2}
    add(b, "a1")
    b.steps(2)
    add(b, "b1")
    assert vtc.counters == {"a": 2 * (8 + 2), "b": 2 * (8 + 2)}


def test_with_one_tenant_it_is_the_order_of_the_queue() -> None:
    spec = "poisson:rate=20,n=200,prompt=256,output=256"
    assert run(["vtc"], spec, 0).outcome == run(["fcfs"], spec, 0).outcome


def one_slot(policy: Vtc, queue: str = "fcfs") -> Bench:
    return bench(("kv_blocks", "chunked_prefill", queue, policy), max_num_seqs=1)


def add(b: Bench, *names: str) -> None:
    """Requests of one token, of the tenant that their first letter names."""
    for name in names:
        b.add(name, 8, tenant=name[0])


def admitted(b: Bench, num_steps: int) -> str:
    """The tenants of those who were admitted, in order."""
    b.steps(num_steps)
    outputs = b.outputs[-num_steps:]
    return "".join(new.request_id[0] for output in outputs for new in output.scheduled_new_reqs)


def test_a_tenant_that_returns_from_idle_has_no_credit() -> None:
    b = one_slot(Vtc())
    add(b, "b0", *(f"a{number}" for number in range(20)))
    assert admitted(b, 10) == "baaaaaaaaa"
    add(b, *(f"b{number}" for number in range(1, 10)))
    assert admitted(b, 10) in ("ba" * 5, "ab" * 5)


def test_where_nobody_waits_a_tenant_is_lifted_to_the_last_who_left() -> None:
    vtc = Vtc()
    b = one_slot(vtc)
    add(b, *(f"a{number}" for number in range(6)))
    b.steps(7)
    add(b, "b0")
    assert vtc.counters["b"] == vtc.counters["a"] == 6 * (8 + 2)


def test_a_prompt_is_charged_before_the_next_is_chosen() -> None:
    b = bench(("kv_blocks", "chunked_prefill", "fcfs", Vtc()))
    add(b, "a0", "a1", "b0", "b1")
    assert list(b.step()) == ["a0", "b0", "a1", "b1"]


def test_nobody_is_admitted_past_one_that_does_not_fit() -> None:
    b = bench(("kv_blocks", "chunked_prefill", "fcfs", Vtc()), blocks=12)
    b.add("x", 8, 30, tenant="a")
    b.step()
    b.add("b0", 44, tenant="b")
    b.step()
    b.add("a0", 4, tenant="a")
    assert list(b.step()) == ["x"]


def test_within_a_tenant_the_queue_decides() -> None:
    b = one_slot(Vtc(), "priority")
    b.add("late", 8, tenant="a", priority=5)
    b.add("urgent", 8, tenant="a", priority=0)
    assert list(b.step()) == ["urgent"]


def test_an_aborted_request_waits_no_more() -> None:
    vtc = Vtc()
    b = one_slot(vtc)
    add(b, "a0", "b0")
    b.abort("b0")
    b.steps(2)
    add(b, "a1", "b1")
    assert vtc.counters == {"a": 8 + 2, "b": 8 + 2}
