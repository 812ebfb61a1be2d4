"""A stack is swapped under a running engine: no token is lost, told twice or told late for ever."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from framework import (
    HeadwayError,
    PluginError,
    RunnerError,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    hookimpl,
)
from framework.engine.core import EngineCore
from framework.engine.front import Front
from framework.engine.llm import LLM
from framework.engine.prompts import Prompt
from framework.testing import TokenRunner, make_requests, run_alone

if TYPE_CHECKING:
    from collections.abc import Callable

    from framework.engine.models import LoadedModel
    from framework.output import RunnerOutput, SchedulerOutput

STACK = ("kv_blocks", "chunked_prefill", "fcfs")
PRIORITY = ("kv_blocks", "chunked_prefill", "priority")


def make_core(*extra: object, is_async: bool, runner: TokenRunner | None = None) -> EngineCore:
    limits = {"block_size": 4, "num_blocks": 16, "max_num_seqs": 3, "max_num_batched_tokens": 12}
    config = SchedulerConfig(**limits, async_scheduling=is_async)
    return EngineCore(Scheduler(config, [*STACK, *extra]), runner or TokenRunner(4))


def take(core: EngineCore, found: dict[str, list[int]]) -> None:
    """One step; what it gave."""
    result = core.step()
    assert result is not None
    for name, tokens in zip(result.req_ids, result.new_token_ids, strict=True):
        found.setdefault(name, []).extend(tokens)


@pytest.mark.parametrize("is_async", [False, True])
def test_every_token_is_returned_once_over_swaps(is_async: bool) -> None:
    requests = make_requests(6, prompt_len=[5, 17], max_tokens=9)
    found: dict[str, list[int]] = {}
    with make_core(is_async=is_async) as core:
        for each in requests:
            core.add(each)
        for number in range(200):
            if not core.has_work:
                break
            if number % 3 == 2:
                core.swap(PRIORITY if number % 2 else STACK)
            take(core, found)
    assert found == run_alone(requests)


def test_the_steps_in_flight_are_applied_first_and_returned_later() -> None:
    (one,) = make_requests(1, prompt_len=5, max_tokens=9)
    found: dict[str, list[int]] = {}
    with make_core(is_async=True) as core:
        core.add(one)
        take(core, found)
        assert core.scheduler.num_steps_in_flight == 1
        core.swap(PRIORITY)
        assert core.scheduler.num_steps_in_flight == 0 and one.num_output_tokens == 2
        assert len(found["r0"]) == 1
        take(core, found)
        assert len(found["r0"]) == 2


class Sulking:
    """Raises whenever a step is done."""

    @hookimpl
    def step_finished(self) -> None:
        raise ZeroDivisionError("a bad day")


def test_a_broken_stack_can_be_swapped_away(caplog: pytest.LogCaptureFixture) -> None:
    (one,) = make_requests(1, prompt_len=5, max_tokens=9)
    found: dict[str, list[int]] = {}
    with make_core(Sulking(), is_async=True) as core, caplog.at_level(logging.WARNING):
        core.add(one)
        core._launch()
        core.swap(PRIORITY)
        assert "'sulking', hook 'step_finished' in step 0" in caplog.text
        while core.has_work:
            take(core, found)
    assert found == run_alone([one])


class Broken(TokenRunner):
    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        raise RunnerError("no memory")


def test_no_swap_saves_an_engine_whose_runner_failed() -> None:
    with make_core(is_async=True, runner=Broken(4)) as core:
        core.add(make_requests(1)[0])
        core._launch()
        with pytest.raises(RunnerError, match="no memory"):
            core.swap(PRIORITY)
        with pytest.raises(HeadwayError, match="failed earlier"):
            core.swap(PRIORITY)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_front_completes_the_stack_and_keeps_timelines(
    model: Callable[..., LoadedModel], is_async: bool
) -> None:
    asked = Prompt(prompt="hi", sampling_params=SamplingParams(max_tokens=8))
    with Front(model(async_scheduling=is_async), STACK, timed=True) as front:
        live = front.submit(asked)
        front.step()
        front.step()
        assert front.swap(["priority"]) == ["kv_blocks", "chunked_prefill", "priority"]
        (done,) = front.run([live])
        assert (done.text, done.num_preemptions) == ("abcdefgh", 1)
        assert done.timings.preempted_s > 0
        assert ("priority", "order_waiting") in {
            (one.plugin, one.hook) for one in front.core.scheduler.hook_times()
        }


def test_a_stack_that_cannot_be_used_leaves_the_old_one(
    model: Callable[..., LoadedModel],
) -> None:
    with LLM.from_loaded(model(), ["priority"]) as llm:
        text = llm.stream("hi", SamplingParams(max_tokens=8))
        pieces = [next(text)]
        with pytest.raises(PluginError, match="prioritee"):
            llm.swap(["prioritee"])
        assert llm.swap(["fcfs"])[-1] == "fcfs"
        assert "".join([*pieces, *text]) == "abcdefgh"
