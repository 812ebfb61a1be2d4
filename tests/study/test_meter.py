"""What is measured, against the plainest way to measure it."""

from __future__ import annotations

import json
from itertools import pairwise
from math import isnan
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from framework import (
    ConfigError,
    LinearLatency,
    PluginError,
    Scheduler,
    SchedulerConfig,
    Slo,
    VirtualClock,
)
from framework.study.drive import Drive
from framework.study.meter import Meter
from framework.study.outcome import outcome_of
from framework.study.run import simulate_policy
from framework.study.series import Gaps
from framework.study.workload import Arrival, Workload
from runners.simulated import SimulatedRunner

if TYPE_CHECKING:
    from framework.output import SchedulerOutput, StepResult

TEN_MS = LinearLatency(base_ms=10)
STACK = ["kv_blocks", "chunked_prefill(cap=16)", "fcfs"]


@define(eq=False)
class Slow(Meter):
    """Also writes down when each request got tokens, and when it ended."""

    tokens: dict[str, list[float]] = field(factory=dict)
    ends: dict[str, float] = field(factory=dict)

    def step(
        self, scheduler: Scheduler, output: SchedulerOutput, result: StepResult, now: float
    ) -> None:
        for name in result.req_ids:
            self.tokens.setdefault(name, []).append(now)
        for name in result.finish_reasons:
            self.ends[name] = now
        Meter.step(self, scheduler, output, result, now)


def run(
    workload: Workload, latency: LinearLatency = TEN_MS, **limits: Any
) -> tuple[Slow, Scheduler]:
    fields = {"block_size": 4, "num_blocks": 60, "max_num_seqs": 8, "max_model_len": 256}
    config = SchedulerConfig(**{**fields, **limits})
    meter, runner = Slow(), SimulatedRunner(config, latency, VirtualClock())
    scheduler = Scheduler(config, [*STACK, meter], clock=runner.clock)
    Drive(workload, scheduler, runner, meter).run()
    return meter, scheduler


def one(**fields: Any) -> Workload:
    return Workload(name="one", arrivals=[Arrival(request_id="a", time=0.0, **fields)])


def crowd(seed: int = 1) -> Workload:
    """Forty requests in a pool that is too small for them."""
    draw = Random(seed)
    arrivals = [
        Arrival(
            request_id=f"r{number}",
            time=draw.uniform(0, 0.5),
            prompt_len=draw.randint(1, 60),
            output_len=draw.choice([1, 2, 5, 40]),
            tenant=draw.choice(["t0", "t1"]),
        )
        for number in range(40)
    ]
    return Workload(name="crowd", arrivals=sorted(arrivals, key=lambda arrival: arrival.time))


def test_one_request_takes_the_sum_of_its_steps() -> None:
    meter, scheduler = run(one(prompt_len=20, output_len=5), max_num_batched_tokens=16)
    outcome = outcome_of(meter, scheduler)
    assert outcome.ttft_s.mean == pytest.approx(0.02)  # two chunks of at most 16 tokens
    assert outcome.e2e_s.mean == pytest.approx(0.06)
    assert outcome.tpot_s.mean == pytest.approx(0.01)
    assert outcome.itl_s.count == 4
    assert outcome.itl_s.mean == pytest.approx(0.01)
    assert outcome.queueing_s.mean == 0
    assert outcome.normalised_s.mean == pytest.approx(0.06 / 5)


def test_one_token_has_no_time_per_token() -> None:
    meter, scheduler = run(one(prompt_len=3, output_len=1))
    outcome = outcome_of(meter, scheduler)
    assert (outcome.tpot_s.count, outcome.itl_s.count) == (0, 0)
    assert outcome.e2e_s.mean == outcome.ttft_s.mean == pytest.approx(0.01)


@pytest.mark.parametrize("seed", range(3))
def test_latencies_are_those_of_the_plain_way_under_preemptions(seed: int) -> None:
    latency = LinearLatency(base_ms=5, token_ms=0.3)
    meter, scheduler = run(crowd(seed), latency, num_blocks=36)
    assert scheduler.counters.num_preemptions > 0
    gaps: list[float] = []
    rows = zip(meter.ended, *(meter.columns[name] for name in COLUMNS), strict=True)
    for ended, ttft, e2e, tpot, longest in rows:
        times, start = meter.tokens[ended.arrival.request_id], ended.arrival.time
        own = [after - before for before, after in pairwise(times)]
        gaps += own
        assert ttft == pytest.approx(times[0] - start)
        assert e2e == pytest.approx(meter.ends[ended.arrival.request_id] - start)
        assert longest == pytest.approx(max(own, default=float("nan")), nan_ok=True)
        if len(times) > 1:
            assert tpot == pytest.approx((times[-1] - times[0]) / (len(times) - 1))
        else:
            assert isnan(tpot)
    assert meter.gaps.count == len(gaps)
    assert meter.gaps.total == pytest.approx(sum(gaps))
    assert meter.gaps.longest == pytest.approx(max(gaps))
    middle = sorted(gaps)[len(gaps) // 2]
    assert meter.gaps.percentile(0.5) == pytest.approx(middle, rel=0.01)


COLUMNS = ("ttft", "e2e", "tpot", "longest_gap")


def test_who_is_refused_or_unfinished_keeps_no_promise() -> None:
    promise = Slo(ttft_s=10.0)
    arrivals = [
        Arrival(request_id="fits", time=0.0, prompt_len=10, output_len=5, slo=promise),
        Arrival(request_id="never", time=0.0, prompt_len=255, output_len=5, slo=promise),
        Arrival(request_id="late", time=0.0, prompt_len=10, output_len=50, slo=promise),
        Arrival(request_id="unseen", time=99.0, prompt_len=10, output_len=5, slo=promise),
    ]
    workload = Workload(name="four", arrivals=arrivals)
    config = SchedulerConfig(block_size=4, num_blocks=60, max_model_len=256)
    found = simulate_policy(workload, ["fcfs"], config=config, latency=TEN_MS, horizon=0.3).outcome
    assert found.reasons == {"refused": 1, "stop": 1, "unfinished": 1}
    assert found.attainment == 0.25
    assert found.goodput == pytest.approx(1 / found.duration_s)


def test_a_promise_is_kept_or_broken_by_first_token_and_by_mean_gap() -> None:
    for slo, kept in (
        (Slo(ttft_s=0.011, tpot_s=0.011), 1.0),
        (Slo(ttft_s=0.009), 0.0),
        (Slo(tpot_s=0.009), 0.0),
        (Slo(), 1.0),
    ):
        meter, scheduler = run(one(prompt_len=4, output_len=3, slo=slo))
        assert outcome_of(meter, scheduler).attainment == kept


def test_an_output_that_a_limit_cuts_short_counts_with_the_tokens_it_has() -> None:
    slo = Slo(tpot_s=0.011)
    meter, scheduler = run(one(prompt_len=10, output_len=50, slo=slo), max_model_len=15)
    outcome = outcome_of(meter, scheduler)
    assert outcome.reasons == {"length": 1}
    assert outcome.tpot_s.mean == pytest.approx(0.01)
    assert outcome.normalised_s.mean == pytest.approx(0.01)
    meter, scheduler = run(one(prompt_len=10, output_len=50, slo=slo), max_model_len=11)
    assert outcome_of(meter, scheduler).tpot_s.count == 0
    assert outcome_of(meter, scheduler).attainment == 1.0


def test_children_come_after_their_parents_with_what_was_said() -> None:
    arrivals = [
        Arrival(request_id="first", time=0.0, prompt_len=16, output_len=9),
        Arrival(request_id="second", time=0.5, prompt_len=30, output_len=2, parent="first"),
    ]
    meter, scheduler = run(Workload(name="chat", arrivals=arrivals))
    assert meter.columns["arrival"][1] == pytest.approx(meter.ends["first"] + 0.5)
    assert scheduler.counters.num_prefix_hit == 24  # 16 + 8 outputs whose KV is there


def test_a_child_stands_after_its_parent() -> None:
    both = [
        Arrival(request_id=name, time=0.0, prompt_len=4, output_len=2, parent=parent)
        for name, parent in (("a", "b"), ("b", "a"))
    ]
    with pytest.raises(ConfigError, match="parent: got 'b', allowed: the id of an arrival before"):
        Workload(name="circle", arrivals=both)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), "3"])
def test_a_request_arrives_at_a_moment(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="time: got"):
        Arrival(request_id="a", time=seconds, prompt_len=4, output_len=2)


@pytest.mark.parametrize("horizon", [0.0, -1.0, float("nan"), "3"])
def test_a_horizon_is_above_0(horizon: Any) -> None:
    with pytest.raises(ConfigError, match="horizon: got"):
        simulate_policy(one(prompt_len=4, output_len=2), ["fcfs"], horizon=horizon)


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), "x"])
def test_weights_of_tenants_are_above_0(weight: Any) -> None:
    with pytest.raises(ConfigError, match="tenant_weights: got"):
        simulate_policy(one(prompt_len=4, output_len=2), ["fcfs"], tenant_weights={"a": weight})


def test_plugins_are_a_list() -> None:
    with pytest.raises(PluginError, match=r"got 'fcfs', allowed: a list, such as \['fcfs'\]"):
        simulate_policy(one(prompt_len=4, output_len=2), "fcfs")


def test_percentiles_are_right_to_half_a_per_cent() -> None:
    draw, gaps = Random(3), Gaps()
    values = [draw.lognormvariate(-4, 1) for _ in range(5000)]
    for value in values:
        gaps.add(value)
    values.sort()
    for share in (0.01, 0.5, 0.9, 0.99):
        assert gaps.percentile(share) == pytest.approx(values[int(share * 4999)], rel=0.0075)


def test_a_percentile_of_few_gaps_lies_between_two_of_them() -> None:
    gaps = Gaps()
    gaps.add(0.01, 4)
    gaps.add(0.03)
    assert gaps.percentile(0.5) == pytest.approx(0.01, rel=0.0075)
    assert gaps.percentile(0.99) == pytest.approx(0.01 + 0.02 * 0.96, rel=0.0075)
    assert gaps.percentile(1.0) == 0.03


def test_memory_in_use_is_what_steps_hold_while_they_run() -> None:
    lines: list[str] = []
    config = SchedulerConfig(block_size=4, num_blocks=60, max_num_seqs=8, max_model_len=256)
    found = simulate_policy(crowd(), STACK, config=config, latency=TEN_MS, record=lines.append)
    used = [step["used"] for step in map(json.loads, lines[1:-1])]
    assert found.outcome.mean_kv_use == pytest.approx(
        sum(used) * 0.01 / 59 / found.outcome.duration_s
    )


def test_nobody_runs_between_the_end_of_one_and_the_arrival_of_the_next() -> None:
    arrivals = [
        Arrival(request_id=name, time=time, prompt_len=8, output_len=3)
        for name, time in (("a", 0.0), ("b", 0.97))
    ]
    meter, scheduler = run(Workload(name="two", arrivals=arrivals))
    outcome = outcome_of(meter, scheduler)
    assert outcome.duration_s == pytest.approx(1.0)
    assert outcome.mean_running == pytest.approx(0.06)  # two requests, three steps of 10 ms each
    assert outcome.mean_kv_use == pytest.approx(2 * (0.01 * 2 + 0.02 * 3) / 59)


def test_the_same_run_gives_the_same_figures() -> None:
    first, second = (simulate_policy(crowd(), ["vtc"]).outcome.as_dict() for _ in range(2))
    assert first == second


def test_accepted_drafts_are_service_too() -> None:
    workload = Workload(
        name="drafts",
        arrivals=[
            Arrival(request_id=f"r{number}", time=0.0, prompt_len=20, output_len=30, tenant="t")
            for number in range(3)
        ],
    )
    config = SchedulerConfig(block_size=4, num_blocks=200, max_model_len=256, num_spec_tokens=3)
    drafting = simulate_policy(workload, ["spec_decode"], config=config, latency=TEN_MS)
    assert drafting.scheduler.counters.num_drafts_accepted > 0
    assert drafting.outcome.service == {"t": 3 * (20 + 2 * 30)}
