from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest

from framework import (
    HeadwayError,
    PolicyError,
    Request,
    RequestError,
    RunnerError,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    StallError,
    hookimpl,
)
from framework.engine.core import EngineCore
from framework.testing import TokenRunner, run_alone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.output import RunnerOutput, SchedulerOutput

STACK = ("kv_blocks", "chunked_prefill", "fcfs")


def make_core(
    plugins: Sequence[object] = STACK, runner: TokenRunner | None = None, **limits: int
) -> EngineCore:
    config = SchedulerConfig(**{"block_size": 4, "num_blocks": 32, **limits})
    return EngineCore(Scheduler(config, plugins), runner or TokenRunner(4))


def request(name: str, length: int = 6, max_tokens: int = 5) -> Request:
    return Request(name, list(range(length)), SamplingParams(max_tokens=max_tokens))


def outputs(core: EngineCore) -> dict[str, list[int]]:
    """Run to the end; {id: tokens}."""
    found: dict[str, list[int]] = {}
    while core.has_work:
        result = core.step()
        assert result is not None
        for name, tokens in zip(result.req_ids, result.new_token_ids, strict=True):
            found.setdefault(name, []).extend(tokens)
    return found


@pytest.mark.parametrize("is_async", [False, True])
def test_outputs_are_those_of_a_lone_run(is_async: bool) -> None:
    with make_core(num_blocks=8, async_scheduling=is_async) as core:
        requests = [request(name) for name in "abcd"]
        for each in requests:
            core.add(each)
        assert outputs(core) == run_alone(requests)
        assert core.scheduler.kv is not None
        assert core.scheduler.kv.num_free_blocks == core.scheduler.kv.num_total_blocks


def test_without_work_a_step_is_none() -> None:
    core = make_core()
    assert not core.has_work
    assert core.step() is None


def test_a_refused_request_changes_nothing() -> None:
    core = make_core()
    with pytest.raises(RequestError, match="prompt has 0 tokens"):
        core.add(request("a", length=0))
    assert not core.has_work


def test_abort_ends_a_request_between_steps() -> None:
    core = make_core()
    core.add(request("a"))
    core.add(request("b"))
    core.step()
    assert core.abort("a") and not core.abort("a") and not core.abort("ghost")
    assert len(outputs(core)["b"]) == 4
    assert not core.has_work


class Watched(TokenRunner):
    """Notes in which threads it ran."""

    threads: set[int]

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        self.threads.add(threading.get_ident())
        return super().execute(output)


@pytest.mark.parametrize("is_async", [False, True])
def test_async_runs_in_a_thread_one_step_ahead(is_async: bool) -> None:
    runner = Watched(4)
    runner.threads = set()
    left_in_flight = set()
    with make_core(runner=runner, async_scheduling=is_async) as core:
        core.add(request("a", max_tokens=20))
        while core.has_work:
            core.step()
            left_in_flight.add(core.scheduler.num_steps_in_flight)
    assert left_in_flight == ({0, 1} if is_async else {0})
    assert len(runner.threads) == 1
    assert (threading.get_ident() in runner.threads) is not is_async


class Deferring(TokenRunner):
    """Answers with a future."""

    def execute(self, output: SchedulerOutput) -> Future[RunnerOutput]:  # type: ignore[override]
        future: Future[RunnerOutput] = Future()
        future.set_result(super().execute(output))
        return future


@pytest.mark.parametrize("is_async", [False, True])
def test_a_runner_may_answer_with_a_future(is_async: bool) -> None:
    with make_core(runner=Deferring(4), async_scheduling=is_async) as core:
        core.add(each := request("a"))
        assert outputs(core) == run_alone([each])


class Moody:
    """Raises at its third question."""

    num_asked = 0

    @hookimpl
    def select_waiting(self) -> None:
        self.num_asked += 1
        if self.num_asked == 3:
            raise ZeroDivisionError("a bad day")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failing_policy_loses_nothing(is_async: bool) -> None:
    with make_core((*STACK, Moody()), max_num_seqs=1, async_scheduling=is_async) as core:
        requests = [request(name) for name in "abc"]
        for each in requests:
            core.add(each)
        found: dict[str, list[int]] = {}
        with pytest.raises(PolicyError, match=r"'moody', hook 'select_waiting'.*a bad day"):
            while True:
                result = core.step()
                assert result is not None
                for name, tokens in zip(result.req_ids, result.new_token_ids, strict=True):
                    found.setdefault(name, []).extend(tokens)
        for name, tokens in outputs(core).items():
            found.setdefault(name, []).extend(tokens)
        assert found == run_alone(requests)


class Refuses:
    @hookimpl
    def may_admit(self, request: Request) -> bool:
        return request.request_id != "b"


def test_a_stall_is_raised_and_the_rest_can_be_aborted() -> None:
    core = make_core((*STACK, Refuses()))
    core.add(request("a"))
    core.add(request("b"))
    with pytest.raises(StallError, match="'b' is blocked"):
        outputs(core)
    assert core.abort("b")
    outputs(core)
    assert not core.has_work


class Broken(TokenRunner):
    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        raise RunnerError("no memory")


@pytest.mark.parametrize("is_async", [False, True])
def test_after_a_failing_runner_the_engine_is_done(is_async: bool) -> None:
    with make_core(runner=Broken(4), async_scheduling=is_async) as core:
        core.add(request("a"))
        with pytest.raises(RunnerError, match="no memory"):
            core.step()
        with pytest.raises(HeadwayError, match="failed earlier and cannot go on: no memory"):
            core.step()
