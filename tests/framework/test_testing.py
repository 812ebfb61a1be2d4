"""The checks see what they are for, and the simulation runs what a real runner would."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from framework import (
    HOLD,
    HeadwayError,
    Hit,
    Request,
    RunnerError,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    Status,
    hookimpl,
)
from framework.testing import (
    InvariantError,
    Invariants,
    TokenRunner,
    default_tokens,
    make_requests,
    partly_right,
    run_alone,
    simulate,
)
from plugins.kv_blocks import KvBlocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from framework import SchedulerOutput, StepResult

STACK = ("kv_blocks", "chunked_prefill", "fcfs")
SMALL = {"max_num_batched_tokens": 16, "max_model_len": 64, "block_size": 4, "num_blocks": 14}


class Driven:
    """A scheduler one step into two requests, its plan checked already."""

    def __init__(self, *extra: object, **limits: Any) -> None:
        self.scheduler = Scheduler(SchedulerConfig(**{**SMALL, **limits}), [*STACK, *extra])
        self.invariants = Invariants(self.scheduler)
        self.runner = TokenRunner(4)
        for request in make_requests(2, prompt_len=6, max_tokens=2):
            self.scheduler.add_request(request)
        self.output = self.scheduler.schedule()

    def plan(self) -> SchedulerOutput:
        self.invariants.after_schedule(self.output)
        return self.output

    def update(self) -> StepResult:
        return self.scheduler.update_from_output(self.output, self.runner.execute(self.output))

    def to_the_end(self) -> None:
        while True:
            self.plan()
            self.invariants.after_update(self.update())
            if not self.scheduler.has_requests():
                return
            self.output = self.scheduler.schedule()


# ---------------------------------------------------------------------------------------------
# invariants
# ---------------------------------------------------------------------------------------------


def test_a_sound_run_passes_every_check() -> None:
    driven = Driven()
    driven.to_the_end()
    driven.invariants.at_idle()


def too_many_tokens(driven: Driven) -> None:
    driven.output.num_scheduled_tokens["r0"] = 17
    driven.output.total_num_scheduled_tokens = 23


def an_empty_entry(driven: Driven) -> None:
    driven.output.num_scheduled_tokens["r0"] = 0
    driven.output.total_num_scheduled_tokens = 6


def an_entry_nobody_hears_of(driven: Driven) -> None:
    driven.output.scheduled_new_reqs.pop()


def a_victim_in_the_plan(driven: Driven) -> None:
    driven.output.preempted_req_ids = ["r1"]


def an_ended_one_in_the_plan(driven: Driven) -> None:
    driven.scheduler.abort("r1")


def a_count_that_is_off(driven: Driven) -> None:
    driven.output.scheduled_new_reqs[0].num_computed_tokens = 1


def an_end_not_handed_out(driven: Driven) -> None:
    driven.output.finished_req_ids = ("r7",)


def a_waiter_that_runs(driven: Driven) -> None:
    request, waiting = driven.scheduler.requests["r0"], driven.scheduler.waiting
    waiting.put_back(request, waiting.rank_of(request, Status.WAITING))


def tokens_that_do_not_add_up(driven: Driven) -> None:
    driven.scheduler.requests["r0"].num_known_tokens += 1


def a_block_that_leaks(driven: Driven) -> None:
    owner: Any = dict(driven.scheduler.plugins)["kv_blocks"]
    owner.pool.take(1)


def a_table_too_short(driven: Driven) -> None:
    owner: Any = dict(driven.scheduler.plugins)["kv_blocks"]
    request = driven.scheduler.requests["r1"]
    owner.withdraw(request, list(owner.table(request)))


def a_counter_that_is_off(driven: Driven) -> None:
    driven.scheduler.counters.finished["length"] += 1


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (too_many_tokens, "23 tokens, told 23, budget 16"),
        (an_empty_entry, "an empty entry"),
        (an_entry_nobody_hears_of, r"new and cached requests are \['r0'\]"),
        (a_victim_in_the_plan, r"\['r1'\] lost their place and are planned"),
        (an_ended_one_in_the_plan, "'r1' is planned and does not run"),
        (a_count_that_is_off, "'r0' has 1 computed, 6 scheduled, 6 in the books"),
        (an_end_not_handed_out, r"finished_req_ids are \['r7'\]"),
        (a_waiter_that_runs, "running and waiting are"),
        (tokens_that_do_not_add_up, "tokens, placeholders and drafts are not the known ones"),
        (a_block_that_leaks, "the pool: reference counts differ"),
        (a_table_too_short, "has slots for 0 of 6 tokens"),
        (a_counter_that_is_off, "the counters tell of"),
    ],
)
def test_a_fault_of_the_plan_is_seen(fault: Callable[[Driven], None], sentence: str) -> None:
    driven = Driven()
    fault(driven)
    with pytest.raises(InvariantError, match=sentence):
        driven.plan()


def test_more_entries_than_slots_are_seen() -> None:
    driven = Driven(max_num_seqs=1)
    driven.output.num_scheduled_tokens["r1"] = 1
    driven.output.total_num_scheduled_tokens += 1
    with pytest.raises(InvariantError, match="2 entries, max_num_seqs 1"):
        driven.plan()


def test_an_end_that_no_result_tells_is_seen() -> None:
    driven = Driven()
    driven.plan()
    driven.update()
    driven.output = driven.scheduler.schedule()
    driven.plan()
    result = driven.update()
    assert result.finish_reasons.pop("r0") == "length"
    with pytest.raises(InvariantError, match=r"the books .*'r0', 'length'"):
        driven.invariants.after_update(result)


def test_a_second_end_of_one_request_is_seen() -> None:
    driven = Driven()
    driven.plan()
    driven.scheduler.abort("r0")
    driven.invariants.check_state()
    books: Any = driven.scheduler.events
    books.append(books[-1]._replace(step=9))
    with pytest.raises(InvariantError, match="'r0' finished: it is live -1 times"):
        driven.invariants.check_state()


class Nobody:
    """Admits nobody."""

    @hookimpl
    def select_waiting(self) -> object:
        return HOLD


def test_a_second_step_without_progress_is_seen() -> None:
    driven = Driven(Nobody())
    driven.plan()
    driven.invariants.after_update(driven.update())
    with pytest.raises(InvariantError, match="the second empty one in a row"):
        driven.plan()


@define(eq=False)
class Keeper(KvBlocks):
    """Never gives a block back."""

    name = "kv_blocks"

    @hookimpl
    def release(self, request: Request) -> None:
        pass


def test_blocks_kept_by_an_ended_request_are_seen() -> None:
    with pytest.raises(InvariantError, match="have ended and hold blocks"):
        simulate([Keeper(), "fcfs"], make_requests(1))


@define(eq=False)
class Hoarder:
    """Remembers every request."""

    seen: dict[Request, int] = field(factory=dict)

    @hookimpl
    def request_finished(self, request: Request) -> None:
        self.seen[request] = 1


def test_a_request_remembered_at_idle_is_seen() -> None:
    with pytest.raises(InvariantError, match="plugin 'hoarder' keeps requests in 'seen'"):
        simulate([*STACK, Hoarder()], make_requests(1))


def test_idle_means_that_nothing_is_left() -> None:
    driven = Driven()
    driven.plan()
    with pytest.raises(InvariantError, match=r"\['r0', 'r1'\] are unfinished"):
        driven.invariants.at_idle()


# ---------------------------------------------------------------------------------------------
# the runner
# ---------------------------------------------------------------------------------------------


@define(eq=False)
class Liar(KvBlocks):
    """Finds the first block of everyone in everyone's cache."""

    name = "kv_blocks"

    @hookimpl
    def match_prefix(self, request: Request) -> Hit:
        return Hit(self.block_size, blocks=[1]) if self.pool.ref_counts[1] else Hit()


def test_a_block_with_other_content_is_found_out() -> None:
    with pytest.raises(RunnerError, match="'r1' finds something else at position 0"):
        simulate([Liar(), "fcfs"], make_requests(2), SchedulerConfig(block_size=4))


def test_a_token_without_a_slot_is_found_out() -> None:
    driven = Driven()
    driven.output.scheduled_new_reqs[1].block_ids.pop()
    with pytest.raises(RunnerError, match="'r1' has no slot for position 4: 1 blocks of 4"):
        driven.runner.execute(driven.output)


def test_tokens_that_the_runner_does_not_know_are_found_out() -> None:
    driven = Driven()
    driven.output.num_scheduled_tokens["r1"] = 7
    with pytest.raises(RunnerError, match="'r1' is to compute 7 tokens after 0"):
        driven.runner.execute(driven.output)


def test_drafts_are_right_up_to_a_point() -> None:
    drafts = partly_right(default_tokens)
    right = [default_tokens("x", position) for position in range(2, 5)]
    assert drafts("x", 2, 3) == [right[0], right[1], right[2] + 1]


# ---------------------------------------------------------------------------------------------
# simulations
# ---------------------------------------------------------------------------------------------

STACKS = {
    "plain": STACK,
    "priority": ("kv_blocks", "chunked_prefill(cap=5)", "priority(displace=True)"),
    "ngram": ("kv_blocks", "chunked_prefill", "spec_decode", "fcfs"),
    "runner": ("kv_blocks", "chunked_prefill", "spec_decode(method='runner', pad=True)", "fcfs"),
    "offload": ("kv_blocks", "chunked_prefill", "kv_offload(load='async')", "fcfs"),
    "no owner": ("chunked_prefill", "fcfs"),
}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_every_stack_gives_the_tokens_of_a_run_alone(
    stack: tuple[str, ...], is_async: bool
) -> None:
    with_drafts = any("spec_decode" in plugin for plugin in stack)
    config = SchedulerConfig(
        **SMALL, num_spec_tokens=3 if with_drafts else 0, async_scheduling=is_async
    )
    requests = make_requests(8, prompt_len=[5, 17, 8, 24], max_tokens=[9, 1, 14])
    expected = run_alone(requests, config)
    drafts = partly_right(default_tokens) if with_drafts else None
    trace = simulate(stack, requests, config, drafts=drafts, arrive_at={"r6": 4, "r7": 9})
    assert trace.tokens == expected
    assert bool(trace.preempted) == (stack != STACKS["no owner"])


def test_a_run_alone_gives_the_model_s_tokens_up_to_the_stop() -> None:
    params = SamplingParams(max_tokens=6, stop_token_ids=[3])
    request = Request("x", [7, 7], params)
    assert run_alone([request], tokens=lambda _, position: position) == {"x": [0, 1, 2, 3]}
    assert request.output_token_ids == []


def test_aborts_and_refusals_are_in_the_trace() -> None:
    config = SchedulerConfig(**SMALL)
    requests = make_requests(3, prompt_len=[8, 63, 200], max_tokens=20)
    trace = simulate(STACK, requests, config, abort_at={"r0": 3})
    assert trace.requests["r0"].status.value == "aborted"
    assert len(trace.tokens["r0"]) == 3
    assert "can never fit" in trace.refused["r1"]
    assert "prompt has 200 tokens" in trace.refused["r2"]


def test_a_simulation_that_does_not_end_says_who_is_left() -> None:
    with pytest.raises(HeadwayError, match=r"after 3 steps \['r0'\] are unfinished"):
        simulate(STACK, make_requests(1, max_tokens=20), max_steps=3)


def test_made_requests_are_unlike() -> None:
    requests = make_requests(3, prompt_len=[4, 2], max_tokens=5, priority=7)
    assert [request.request_id for request in requests] == ["r0", "r1", "r2"]
    assert [request.num_prompt_tokens for request in requests] == [4, 2, 4]
    assert len({token for request in requests for token in request.prompt_token_ids}) == 10
    assert {request.priority for request in requests} == {7}


def test_the_kit_needs_no_test_framework() -> None:
    code = (
        "import framework.testing, sys;"
        "print([name for name in ('pytest', 'hypothesis', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
