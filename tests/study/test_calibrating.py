"""A real runner here is one that sleeps as long as a model says; times are then lower bounds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from framework import SchedulerConfig
from framework.engine.models import LoadedModel
from framework.engine.prompts import Prompt
from framework.errors import ConfigError
from framework.latency import LinearLatency
from framework.protocols import Batch
from framework.sampling import SamplingParams
from framework.study.calibrating import (
    MeasuredFront,
    Phase,
    batch_of,
    calibration_phases,
    measure_runner,
)
from framework.study.run import simulate_policy
from framework.study.synthetic import make_workload
from runners.scripted import ScriptedRunner

if TYPE_CHECKING:
    from framework import RunnerOutput, SchedulerOutput

SLOW = LinearLatency(base_ms=1.0, token_ms=0.02)


@define(eq=False)
class Sleeper:
    """Takes real time."""

    latency: LinearLatency = SLOW
    inner: ScriptedRunner = field(factory=ScriptedRunner)
    plans: list[SchedulerOutput] = field(factory=list)

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        self.plans.append(output)
        time.sleep(self.latency.predict(batch_of(output)))
        return self.inner.execute(output)

    def close(self) -> None:
        self.inner.close()


def _model(**limits: Any) -> LoadedModel:
    defaults = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 256}
    return LoadedModel(Sleeper(), None, SchedulerConfig(**{**defaults, **limits}))


def test_the_sums_of_a_plan_are_those_that_the_simulated_runner_times() -> None:
    timed, seen = [], []

    class Asking(LinearLatency):
        def predict(self, batch: Batch) -> float:
            timed.append(batch)
            return super().predict(batch)

    @define(eq=False)
    class Around:
        inner: Any

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def execute(self, output: SchedulerOutput) -> RunnerOutput:
            seen.append(batch_of(output))
            return self.inner.execute(output)

    workload = make_workload("poisson:rate=20,n=40,prompt=lognormal(90,1),output=lognormal(9,1)")
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64, num_blocks=200)
    simulate_policy(workload, ["fcfs"], config=config, latency=Asking(base_ms=9), around=Around)
    assert len(seen) > 100
    assert any(batch.num_decodes and batch.num_prefill_tokens for batch in seen)
    assert timed == seen


def test_a_step_is_timed_from_planning_to_delivery() -> None:
    model = _model()
    with MeasuredFront(model, ["kv_blocks", "chunked_prefill", "fcfs"]) as front:
        params = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)
        start = time.perf_counter()
        front.run([front.submit(Prompt(prompt_token_ids=[5] * 100, sampling_params=params))])
        passed = time.perf_counter() - start
        front.drain()
    batches = [row.batch for row in front.rows]
    assert batches == [Batch.of(64, 0), Batch.of(36, 64), Batch.of(1, 100), Batch.of(1, 101)]
    assert all(row.seconds > SLOW.predict(row.batch) for row in front.rows)
    assert sum(row.seconds for row in front.rows) < passed


def test_overlapping_steps_are_not_measured() -> None:
    with pytest.raises(ConfigError, match=r"async_scheduling: got True"):
        MeasuredFront(_model(async_scheduling=True), ["fcfs"])


def test_phases_reach_the_limits_and_stay_within_them() -> None:
    config = SchedulerConfig(
        max_num_seqs=24, max_num_batched_tokens=300, max_model_len=1000, num_blocks=200
    )
    phases = calibration_phases(config, 2000)
    assert {phase.num_requests for phase in phases} == {1, 2, 4, 8, 16, 24}
    assert {phase.prompt_len for phase in phases} == {32, 128, 512, 984}
    assert {phase.chunk for phase in phases} == {16, 32, 64, 128, 256, 300}
    assert all(phase.num_requests * phase.prompt_len <= 2000 for phase in phases)


def test_the_shortest_model_still_gets_a_phase() -> None:
    config = SchedulerConfig(
        max_num_seqs=1, max_num_batched_tokens=8, max_model_len=24, num_blocks=20
    )
    assert calibration_phases(config, 512) == [Phase(1, 8, 8)]
    with pytest.raises(ConfigError, match=r"num_blocks: got 2, allowed: room"):
        calibration_phases(SchedulerConfig(max_model_len=64, num_blocks=2), 512)


def test_a_measurement_covers_batches_chunks_and_mixtures_and_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    rows = measure_runner(_model(), seconds=1.0, on_phase=lambda *news: told.append(news))
    assert {row.batch.num_decodes for row in rows} >= {0, 1, 2, 3, 4}
    assert max(row.batch.num_tokens for row in rows) == 64
    assert any(row.batch.num_decodes and row.batch.num_prefill_tokens for row in rows)
    assert all(row.seconds > SLOW.predict(row.batch) for row in rows)
    assert [number for number, _ in told] == [*range(1, len(told) + 1)]
    assert all(number <= total for number, total in told)
