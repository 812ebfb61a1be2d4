"""Chunked prefill without stalls."""

from __future__ import annotations

import pytest

from framework import Batch, hookimpl
from framework.study.outcome import Outcome
from tests.plugins.simulated import LATENCY, SEEDS, simulated
from tests.support import bench

LOAD = "poisson:rate=4,n=300,prompt=lognormal(1500,0.7),output=lognormal(200,0.7)"


def stack(arguments: str) -> tuple[str, ...]:
    return ("kv_blocks", "fcfs", f"sarathi({arguments})")


@pytest.fixture(scope="module", params=SEEDS)
def pair(request: pytest.FixtureRequest) -> tuple[Outcome, Outcome]:
    """prefill_first and sarathi on one load."""
    seed = request.param
    return simulated("prefill_first", LOAD, seed).outcome, simulated("sarathi", LOAD, seed).outcome


def test_p99_of_the_gaps_is_at_least_4_times_below_prefill_first(
    pair: tuple[Outcome, Outcome],
) -> None:
    stalled, smooth = pair
    assert stalled.itl_s.p99 is not None
    assert smooth.itl_s.p99 is not None
    assert stalled.itl_s.p99 >= 4 * smooth.itl_s.p99


def test_no_gap_is_longer_than_a_full_chunk_takes(pair: tuple[Outcome, Outcome]) -> None:
    _, smooth = pair
    full_chunk = Batch(512, 512, 512 * 8192.0, decode_context=0, num_decodes=1, num_requests=64)
    assert smooth.itl_s.max is not None
    assert smooth.itl_s.max <= LATENCY.predict(full_chunk)


def test_first_tokens_come_later_and_requests_end_no_later(pair: tuple[Outcome, Outcome]) -> None:
    stalled, smooth = pair
    assert stalled.ttft_s.p50 is not None
    assert smooth.ttft_s.p50 is not None
    assert smooth.ttft_s.p50 > 1.2 * stalled.ttft_s.p50
    assert stalled.e2e_s.mean is not None
    assert smooth.e2e_s.mean is not None
    assert smooth.e2e_s.mean <= stalled.e2e_s.mean


def test_decodes_come_before_a_prompt_that_was_admitted_before_them() -> None:
    b = bench(("kv_blocks", "chunked_prefill(cap=8)", "fcfs", "sarathi(chunk=14)"), budget=14)
    b.add("long", 60, 3)
    b.add("short", 6, 9)
    assert b.step() == {"long": 8, "short": 6}
    assert list(b.step().items()) == [("short", 1), ("long", 8)]
    b.finish()


def test_prompts_get_what_decodes_leave_of_the_chunk() -> None:
    b = bench(stack("chunk=16"), budget=64)
    b.add("a", 8, 20)
    b.step()
    b.add("b", 40, 2)
    assert b.steps(3) == [{"a": 1, "b": 15}, {"a": 1, "b": 15}, {"a": 1, "b": 10}]
    b.finish()


def test_a_budget_below_the_chunk_splits_too() -> None:
    b = bench(stack("chunk=512"), budget=16)
    b.add("a", 40, 2)
    assert b.steps(3) == [{"a": 16}, {"a": 16}, {"a": 8}]
    b.finish()


def test_chunks_shrink_in_stages_of_32_as_a_prompt_advances() -> None:
    b = bench(
        stack("chunk=200, last_chunk=40, stages=3"), blocks=300, budget=512, max_model_len=1000
    )
    b.add("a", 900, 2)
    sizes = [step["a"] for step in b.steps(11)]
    assert sizes == [192, 192, 96, 96, 96, 40, 40, 40, 40, 40, 28]
    b.finish()


class Guesses:
    """Two drafts for everybody."""

    @hookimpl
    def propose_drafts(self) -> list[int]:
        return [1, 2]


def test_a_decode_keeps_its_drafts_beyond_the_chunk() -> None:
    b = bench((*stack("chunk=2"), Guesses()), budget=64, num_spec_tokens=2)
    b.add("a", 2, 9)
    assert b.steps(2) == [{"a": 2}, {"a": 3}]
    b.finish()
