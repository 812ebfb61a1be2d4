"""The simulated runner: lengths, sums and time follow from the plans."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field

from framework import (
    Batch,
    LinearLatency,
    Request,
    RunnerError,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    VirtualClock,
)
from framework.output import CachedRequestData, ConnectorMetadata, NewRequestData, SchedulerOutput
from runners.simulated import SimulatedRunner
from runners.simulated.runner import END, FILL

LENGTHS = [1, 2, 7, 30, 13, 1]
STACKS = {
    "plain": (["kv_blocks", "chunked_prefill", "fcfs"], {}),
    "chunks": (["kv_blocks", "chunked_prefill(cap=3)", "fcfs"], {}),
    "drafts": (["kv_blocks", "chunked_prefill", "Drafter", "fcfs"], {"num_spec_tokens": 3}),
    "offload": (["kv_blocks", "chunked_prefill", "kv_offload", "fcfs"], {}),
}


@define(eq=False)
class Watching:
    """Keeps every batch that it is asked for; a step takes 10 ms."""

    batches: list[Batch] = field(factory=list)

    def predict(self, batch: Batch) -> float:
        self.batches.append(batch)
        return 0.01 if batch.num_tokens else 0.0


def config(**fields: Any) -> SchedulerConfig:
    limits = {"num_blocks": 16, "block_size": 4, "max_num_batched_tokens": 24, "max_model_len": 64}
    return SchedulerConfig(**{**limits, **fields})


def serve(name: str) -> tuple[list[Request], Scheduler, Watching, SimulatedRunner]:
    specs, fields = STACKS[name]
    stack = ["spec_decode(min_ngram=1)" if spec == "Drafter" else spec for spec in specs]
    latency, clock = Watching(), VirtualClock()
    runner = SimulatedRunner(config(**fields), latency, clock, kv_bytes_per_token=1)
    scheduler = Scheduler(runner.config, stack, clock=clock)
    requests = []
    for number, length in enumerate(LENGTHS):
        prompt = [100 + number] * (5 + 3 * number)
        params = SamplingParams(max_tokens=40)
        request = Request(f"r{number}", prompt, params, eos_token_ids=runner.eos_token_ids)
        runner.expect(request.request_id, length)
        scheduler.add_request(request)
        requests.append(request)
    while scheduler.has_requests():
        plan = scheduler.schedule()
        scheduler.update_from_output(plan, runner.execute(plan))
    return requests, scheduler, latency, runner


@pytest.mark.parametrize("name", STACKS)
def test_every_request_ends_at_its_own_length(name: str) -> None:
    requests, scheduler, _, _ = serve(name)
    assert [request.num_output_tokens for request in requests] == LENGTHS
    for request in requests:
        assert request.output_token_ids == [FILL] * (request.num_output_tokens - 1) + [END]
    assert scheduler.counters.num_preemptions > 0
    assert (scheduler.counters.num_drafts_accepted > 0) == (name == "drafts")


def test_no_token_is_left_out_of_the_sums() -> None:
    _, scheduler, latency, _ = serve("chunks")
    batches = latency.batches
    assert sum(batch.num_tokens for batch in batches) == scheduler.counters.num_scheduled_tokens
    for batch in batches:
        assert batch.num_tokens == batch.num_prefill_tokens + batch.num_decodes


def step(new: list[NewRequestData], counts: dict[str, int], **fields: Any) -> SchedulerOutput:
    cached = fields.pop("cached", CachedRequestData())
    return SchedulerOutput(0, counts, new, cached, sum(counts.values()), **fields)


def new(name: str, length: int, computed: int = 0) -> NewRequestData:
    return NewRequestData(name, [9] * length, SamplingParams(), [1, 2, 3], computed)


def test_a_mixed_step_is_summed_up_request_by_request() -> None:
    latency = Watching()
    runner = SimulatedRunner(config(), latency)
    for name in ("a", "b", "c"):
        runner.expect(name, 5)
    runner.execute(step([new("a", 8)], {"a": 8}))
    cached = CachedRequestData(["a"], [8], [1])
    found = runner.execute(
        step([new("b", 10, 4), new("c", 9)], {"a": 1, "b": 6, "c": 5}, cached=cached)
    )
    assert found.sampled_token_ids == [[FILL], [FILL], []]
    pairs = 6 * (4 + 3) + 5 * 2.5
    assert latency.batches[-1] == Batch(12, 11, pairs, 9, 1, 3)


def test_the_clock_moves_by_what_a_step_takes() -> None:
    latency = LinearLatency(base_ms=2, token_ms=1)
    runner = SimulatedRunner(config(), latency)
    runner.expect("a", 3)
    found = runner.execute(step([new("a", 8)], {"a": 8}))
    assert found.duration_s == pytest.approx(0.010)
    assert runner.clock.now() == pytest.approx(0.010)
    assert runner.execute(step([], {})).duration_s == 0


def test_copies_over_the_link_take_time() -> None:
    runner = SimulatedRunner(
        config(), LinearLatency(), link_bytes_per_s=1000, kv_bytes_per_token=50
    )
    moves = ConnectorMetadata(stores=[(b"x", 1)], loads=[(b"y", 2), (b"z", 3)], receiving=["r"])
    found = runner.execute(step([], {}, connector_metadata=moves))
    assert found.duration_s == pytest.approx(3 * 4 * 50 / 1000)
    assert found.finished_recving == ["r"]


def test_noise_is_seeded() -> None:
    def times(seed: int) -> list[float]:
        runner = SimulatedRunner(config(), LinearLatency(base_ms=1), noise=0.3, seed=seed)
        runner.expect("a", 9)
        return [runner.execute(step([new("a", 8)], {"a": 8})).duration_s or 0 for _ in range(3)]

    assert times(0) == times(0) != times(1)


def test_a_length_that_was_never_told_is_an_error() -> None:
    runner = SimulatedRunner(config(), LinearLatency())
    with pytest.raises(RunnerError, match="'a' runs, but its length was never told"):
        runner.execute(step([new("a", 8)], {"a": 8}))
