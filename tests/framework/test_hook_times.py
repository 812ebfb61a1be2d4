"""Hooks are timed where it is asked for: what is counted, and that nothing else changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from framework import PolicyError, Request, Scheduler, SchedulerConfig, StepView, hookimpl
from framework.hooks import resolve
from framework.stack import build_manager
from framework.testing import TokenRunner, make_requests
from tests.support import FCFS, PRIORITY

if TYPE_CHECKING:
    from collections.abc import Generator

SLEEP_S = 0.002
SPECULATING = (*PRIORITY, "spec_decode(min_ngram=1)")


@define(eq=False)
class Slow:
    """Each hook of another kind, each of which takes its time."""

    calls: dict[str, int] = field(factory=dict)

    def note(self, hook: str) -> None:
        self.calls[hook] = self.calls.get(hook, 0) + 1
        time.sleep(SLEEP_S)

    @hookimpl
    def select_waiting(self) -> None:
        self.note("select_waiting")

    @hookimpl
    def may_admit(self) -> bool:
        self.note("may_admit")
        return True

    @hookimpl
    def order_waiting(self, request: Request) -> int:
        self.note("order_waiting")
        return 0

    @hookimpl
    def extend_output(self) -> dict[str, Any]:
        self.note("extend_output")
        return {}

    @hookimpl(wrapper=True)
    def allocate(self, step: StepView) -> Generator[None, Any, Any]:
        self.note("allocate")
        blocks = yield
        time.sleep(SLEEP_S)
        return blocks


def run(scheduler: Scheduler, first: int = 0) -> list[object]:
    """Serve some requests; every plan and every result."""
    runner = TokenRunner(scheduler.config.block_size)
    for index, request in enumerate(make_requests(4, prompt_len=[9, 20], max_tokens=5)):
        request.request_id = f"r{first + index}"
        scheduler.add_request(request)
    seen: list[object] = []
    while scheduler.has_requests():
        output = scheduler.schedule()
        result = scheduler.update_from_output(output, runner.execute(output))
        seen += [output.num_scheduled_tokens, result.new_token_ids]
    return seen


def times(scheduler: Scheduler, plugin: str) -> dict[str, tuple[int, float]]:
    """{hook: (calls, seconds)} of one plugin."""
    totals = [one for one in scheduler.hook_times() if one.plugin == plugin]
    return {one.hook: (one.num_calls, one.seconds) for one in totals}


def test_each_call_of_each_kind_of_hook_is_counted_and_timed() -> None:
    slow = Slow()
    scheduler = Scheduler(None, [*FCFS, slow], timed=True)
    run(scheduler)
    found = times(scheduler, "slow")
    assert {hook: count for hook, (count, _) in found.items()} == slow.calls
    for hook, (count, seconds) in found.items():
        assert seconds > count * SLEEP_S * (2 if hook == "allocate" else 1)
    assert times(scheduler, "kv_blocks")["release"][0] == 4


@pytest.mark.parametrize("plugins", [FCFS, PRIORITY, SPECULATING])
def test_timing_changes_no_plan(plugins: tuple[str, ...]) -> None:
    config = SchedulerConfig(num_blocks=20, block_size=4, num_spec_tokens=2)
    plain, timed = (Scheduler(config, plugins, timed=timed) for timed in (False, True))
    assert run(plain) == run(timed)
    assert timed.hook_times() and not plain.hook_times()


def test_totals_go_on_over_a_swap_and_are_copies() -> None:
    scheduler = Scheduler(None, FCFS, timed=True)
    run(scheduler)
    before = times(scheduler, "kv_blocks")
    scheduler.hook_times()[0].num_calls = 0
    assert times(scheduler, "kv_blocks") == before
    scheduler.swap(PRIORITY)
    run(scheduler, 4)
    after = times(scheduler, "kv_blocks")
    assert after["release"][0] == 2 * before["release"][0]
    assert times(scheduler, "fcfs")["order_waiting"][0] == 4


def test_a_hook_that_raises_is_counted_and_named() -> None:
    class Broken:
        @hookimpl
        def may_admit(self) -> bool:
            raise ValueError("oh")

    scheduler = Scheduler(None, [*FCFS, Broken()], timed=True)
    scheduler.add_request(make_requests(1)[0])
    with pytest.raises(PolicyError, match="'broken', hook 'may_admit' for request 'r0'"):
        scheduler.schedule()
    assert times(scheduler, "broken")["may_admit"][0] == 1


def test_hooks_are_left_as_they_are_where_nobody_asks() -> None:
    manager = build_manager(FCFS)
    plain = resolve(manager)
    assert plain.release == manager.get_plugin("kv_blocks").release
    assert resolve(manager, times={}).release != plain.release
