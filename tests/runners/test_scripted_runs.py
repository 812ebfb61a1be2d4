"""Whole runs of the scripted runner under engine and scheduler: stacks, drafts, two in flight."""

from __future__ import annotations

from typing import Any

import pytest

from framework import Request, RunnerError, SamplingParams, Scheduler, SchedulerConfig
from framework.engine.core import EngineCore
from framework.output import CachedRequestData, SchedulerOutput
from framework.testing import default_tokens, partly_right
from runners.scripted import ScriptedRunner

NAMES = [f"r{index}" for index in range(8)]
NUM_OUTPUTS = 20
SHARED = list(range(12))
UNCACHED = "kv_blocks(enable_prefix_caching=False)"
STACKS = {
    "fcfs": ["kv_blocks", "chunked_prefill", "fcfs"],
    "uncached": [UNCACHED, "chunked_prefill", "fcfs"],
    "priority": ["kv_blocks", "chunked_prefill(cap=5)", "priority(displace=True)"],
    "offload": [UNCACHED, "kv_offload", "chunked_prefill", "fcfs"],
    "async offload": [UNCACHED, "kv_offload(load='async')", "chunked_prefill", "fcfs"],
    "drafts": ["kv_blocks", "chunked_prefill", "spec_decode(method='runner')", "fcfs"],
}


def engine(stack: str, *, is_async: bool) -> tuple[EngineCore, list[Request]]:
    """A pool for about three of eight requests, whose prompts begin alike."""
    config = SchedulerConfig(
        block_size=4,
        num_blocks=30,
        max_num_batched_tokens=24,
        max_num_seqs=5,
        num_spec_tokens=3 if stack == "drafts" else 0,
        async_scheduling=is_async,
    )
    drafts = partly_right(default_tokens) if stack == "drafts" else None
    runner = ScriptedRunner(default_tokens, drafts=drafts, block_size=4)
    core = EngineCore(Scheduler(config, STACKS[stack], clock=runner.clock), runner)
    requests = [
        Request(
            name,
            [*SHARED, *range(100 * index, 100 * index + 7 + index)],
            SamplingParams(max_tokens=NUM_OUTPUTS),
            priority=-index,
        )
        for index, name in enumerate(NAMES)
    ]
    return core, requests


def run(core: EngineCore, requests: list[Request]) -> dict[str, list[int]]:
    """Two requests arrive a step; what the engine handed out for each."""
    handed_out: dict[str, list[int]] = {request.request_id: [] for request in requests}
    waiting = list(requests)
    with core:
        while waiting or core.has_work:
            for request in waiting[:2]:
                core.add(request)
            del waiting[:2]
            result = core.step()
            assert result is not None
            for name, tokens in zip(result.req_ids, result.new_token_ids, strict=True):
                handed_out[name] += tokens
    return handed_out


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("stack", STACKS)
def test_every_request_gets_the_tokens_of_the_function(stack: str, is_async: bool) -> None:
    core, requests = engine(stack, is_async=is_async)
    expected = {
        name: [default_tokens(name, position) for position in range(NUM_OUTPUTS)] for name in NAMES
    }
    assert run(core, requests) == expected
    assert core.scheduler.counters.num_preemptions > 0


@pytest.mark.parametrize("is_async", [False, True])
def test_right_drafts_are_counted_and_wrong_ones_taken_back(is_async: bool) -> None:
    core, requests = engine("drafts", is_async=is_async)
    run(core, requests)
    counters = core.scheduler.counters
    assert 0 < counters.num_drafts_accepted < counters.num_drafts


@pytest.mark.parametrize("is_async", [False, True])
def test_what_was_stored_is_loaded_again(is_async: bool) -> None:
    core, requests = engine("offload", is_async=is_async)
    run(core, requests)
    assert core.scheduler.counters.num_external_hit > 0


@pytest.mark.parametrize("is_async", [False, True])
def test_every_load_ahead_of_an_admission_is_reported(is_async: bool) -> None:
    core, requests = engine("async offload", is_async=is_async)
    run(core, requests)
    kinds = [event.kind for event in core.scheduler.events]
    assert kinds.count("loading") == kinds.count("loaded") > 0


@pytest.mark.parametrize("news", [{}, {"new_block_ids": {"ghost": [7]}}])
def test_a_plan_for_a_request_that_nobody_announced_is_refused(news: dict[str, Any]) -> None:
    cached = CachedRequestData(["ghost"], [4], [1], **news)
    plan = SchedulerOutput(3, {"ghost": 1}, [], cached, 1)
    with pytest.raises(RunnerError, match=r"step 3.*'ghost'"):
        ScriptedRunner(default_tokens).execute(plan)


def test_a_plan_for_tokens_that_do_not_exist_is_refused() -> None:
    core, requests = engine("fcfs", is_async=False)
    core.add(requests[0])
    core.step()
    plan = SchedulerOutput(1, {"r0": 2}, [], CachedRequestData(["r0"], [19], [1]), 2)
    with pytest.raises(RunnerError, match="'r0'"):
        core.runner.execute(plan)
