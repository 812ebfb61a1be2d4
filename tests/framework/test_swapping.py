"""A stack is swapped under way: nothing is lost, and a stack that fails leaves no trace."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs
import pytest
from attrs import define, field

from framework import (
    HeadwayError,
    LinearLatency,
    PluginError,
    PolicyError,
    PreemptMode,
    Request,
    RequestError,
    SchedulerConfig,
    Setup,
    StashKey,
    Status,
    hookimpl,
)
from framework.metrics import Recorder
from tests.framework.shipped import POLICIES
from tests.framework.swaps import Swapped, stack, swapped
from tests.support import FCFS, PRIORITY, bench, prompt

STACKS = [["priority(displace=True)"], *([name, "history_quantile"] for name in POLICIES)]
_MARK: StashKey[int] = StashKey()


@define(eq=False)
class Newest:
    """The newest first; notes whom it heard of, and what it found stored on them."""

    seen: list[tuple[str, Status, int]] = field(factory=list)

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        self.seen.append((request.request_id, request.status, len(request.stash)))
        request.stash[_MARK] = 1

    @hookimpl
    def order_waiting(self, request: Request) -> float:
        return -request.arrival_time


@define(eq=False)
class Keeping:
    """The displaced keep their blocks."""

    @hookimpl
    def preempt_mode(self, displaced: bool) -> PreemptMode | None:
        return PreemptMode.KEEP if displaced else None


@define(eq=False)
class Failing:
    """Raises in one hook, from a certain call on."""

    hook: str
    error: Exception
    calls_left: int = 1

    def count(self, hook: str) -> None:
        self.calls_left -= hook == self.hook
        if hook == self.hook and self.calls_left < 0:
            raise self.error

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        if self.hook == "scheduler_built":
            raise self.error

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        request.stash[_MARK] = 2
        self.count("request_arrived")

    @hookimpl
    def order_waiting(self, request: Request) -> int:
        self.count("order_waiting")
        return 0


def loaded(plugins: Any, **limits: Any) -> Swapped:
    """Some running, one in the middle of its prompt, some waiting, of two priorities."""
    run = swapped(plugins, **{"blocks": 24, "budget": 16, "max_num_seqs": 3, **limits})
    for index in range(6):
        length, tokens = 5 + 7 * (index % 3), prompt(8)
        tokens = tokens + prompt(length, 1000 * (index + 1)) if index % 2 else prompt(length, index)
        run.bench.add(f"r{index}", tokens, 6, priority=index % 2, arrival_time=float(index))
    for _ in range(4):
        run.advance()
    return run


def state(run: Swapped) -> list[object]:
    """All that a failed swap must leave alone."""
    scheduler = run.bench.scheduler
    values = [attrs.asdict(request, recurse=False) for request in run.bench.requests]
    stored = [dict(request.stash._values) for request in run.bench.requests]
    queue = [request.request_id for request in scheduler.waiting_requests()]
    counters = attrs.asdict(scheduler.counters)
    return [values, stored, queue, list(scheduler.running), counters, len(scheduler.events)]


@pytest.mark.parametrize("is_async", [False, True])
def test_three_stacks_give_the_outputs_of_one(is_async: bool) -> None:
    run = loaded(FCFS, async_scheduling=is_async)
    run.swap(PRIORITY)
    for _ in range(3):
        run.advance()
    run.swap(stack(Newest()))
    run.bench.add("late", 9, 4)
    run.finish()


@pytest.mark.parametrize("seed", range(24))
def test_swaps_at_random_steps_change_no_output(seed: int) -> None:
    random = Random(seed)
    num_drafts, is_async = random.choice([0, 0, 2]), random.random() < 0.5
    drafting = [["spec_decode(min_ngram=1)"], []] if num_drafts else [[]]
    stacks = [stack(*policy, *extra) for policy in STACKS for extra in drafting]
    limits = {"blocks": random.choice([14, 40]), "budget": random.choice([8, 32])}
    run = swapped(
        random.choice(stacks),
        max_num_seqs=random.choice([2, 5]),
        num_spec_tokens=num_drafts,
        async_scheduling=is_async,
        latency=LinearLatency(token_ms=1.0),
        **limits,
    )
    before = attrs.astuple(run.bench.scheduler.counters)[:-1]
    for index in range(10):
        head = prompt(8) if random.random() < 0.5 else []
        tokens = head + prompt(random.randint(1, 20), 1 + 7 * index)
        count = random.choice([None, 1, 5, 12])
        kind = {"max_tokens": count or 3, "priority": random.randint(0, 2)}
        run.bench.add(f"r{index}", tokens, tenant=f"t{index % 2}", arrival_time=index, **kind)
        for _ in range(random.randint(0, 4)):
            run.advance()
        if random.random() < 0.5:
            run.swap(random.choice(stacks))
        after = attrs.astuple(run.bench.scheduler.counters)[:-1]
        assert all(one >= other for one, other in zip(after, before, strict=True))
        before = after
    run.finish()


def test_who_ran_comes_back_as_resumed_and_first() -> None:
    run = loaded(FCFS)
    ran = [request.request_id for request in run.bench.scheduler.running]
    waited = [request.request_id for request in run.bench.scheduler.waiting_requests()]
    run.swap(FCFS)
    queue = [request.request_id for request in run.bench.scheduler.waiting]
    assert queue == ran + waited
    output = run.bench.schedule()
    assert output.scheduled_cached_reqs.resumed_req_ids == set(output.num_scheduled_tokens)
    told = {*output.preempted_req_ids, *output.num_scheduled_tokens}
    assert set(ran) <= told


def test_ties_keep_the_order_of_running() -> None:
    run = loaded(FCFS)
    queue = [*run.bench.scheduler.running, *run.bench.scheduler.waiting_requests()]
    run.swap(("kv_blocks", "chunked_prefill"))
    assert list(run.bench.scheduler.waiting) == queue


def test_new_plugins_hear_of_everyone_and_find_nothing_stored() -> None:
    run, newest = loaded(PRIORITY), Newest()
    names, running = set(run.bench.scheduler.requests), list(run.bench.scheduler.running)
    run.swap(stack(newest))
    assert {name for name, _, _ in newest.seen} == names
    assert {stored for _, _, stored in newest.seen} == {0}
    lost = {name for name, status, _ in newest.seen if status is Status.PREEMPTED}
    assert lost == {request.request_id for request in running}


def test_the_books_go_on() -> None:
    run = loaded(FCFS)
    scheduler = run.bench.scheduler
    steps, num_events = scheduler.counters.num_steps, len(scheduler.events)
    num_lost = sum(request.num_computed_tokens for request in scheduler.running)
    lost = len(scheduler.running)
    run.bench.abort("r5")
    run.swap(PRIORITY)
    new = list(scheduler.events)[num_events:]
    assert [event.kind for event in new] == ["finished", "swapped", *["preempted"] * lost]
    assert new[1].detail == PRIORITY
    assert scheduler.counters.num_lost_tokens == num_lost
    output = run.bench.schedule()
    assert output.step == steps and output.finished_req_ids == ("r5",)


def test_timelines_last_and_tell_of_the_lost_place() -> None:
    recorder = Recorder()
    run = loaded([*FCFS, recorder])
    request = run.bench.scheduler.running[0]
    timeline = recorder.track(request)
    admitted = timeline.first_admission
    run.swap([*PRIORITY, recorder])
    assert recorder.track(request) is timeline and len(request.stash) == 1
    assert timeline.num_preemptions == request.num_preemptions == 1
    run.advance()
    run.finish()
    assert timeline.first_admission == admitted and timeline.preempted_s > 0


def test_a_paused_request_is_computed_again() -> None:
    run = swapped(stack("priority(displace=True)", Keeping()), blocks=60, max_num_seqs=1)
    low = run.bench.add("low", 10, 6, priority=1)
    run.bench.steps(2)
    run.bench.add("high", 10, 6, priority=0)
    run.bench.step()
    assert low.status is Status.PAUSED
    run.swap(FCFS)
    assert low.status is Status.PREEMPTED and low.num_once_computed == 11
    run.finish()


def test_the_runner_drops_what_the_old_stack_let_it_keep() -> None:
    offloading = (*FCFS, "kv_offload")
    run = swapped(offloading)
    run.bench.add("r", 20, 2)
    run.finish()
    run.bench.step()
    assert run.bench.runner._store
    run.swap(offloading)
    run.bench.add("s", 6, 4)
    assert run.bench.schedule().drop_kept
    run.bench.runner.execute(run.bench.outputs[-1])
    assert not run.bench.runner._store


def test_from_a_stack_without_blocks_and_back() -> None:
    run = swapped(["fcfs"], blocks=30)
    run.bench.add("r", 10, 20)
    run.bench.steps(3)
    run.swap(FCFS)
    run.bench.steps(3)
    run.swap(["chunked_prefill", "priority"])
    run.finish()


def fails(error: type[Exception], match: str, *plugins: object, **limits: Any) -> None:
    """The swap is refused, nothing has changed, and the run goes on as if none had been tried."""
    run, other = loaded(PRIORITY, **limits), loaded(PRIORITY, **limits)
    run.settle()
    other.settle()
    before = state(run)
    with pytest.raises(error, match=match):
        run.bench.scheduler.swap([*plugins])
    assert state(run) == before
    run.bench.invariants.check_state()
    run.finish()
    other.finish()
    plans = [[output.num_scheduled_tokens for output in one.bench.outputs] for one in (run, other)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("hook", "raised", "error", "match"),
    [
        ("scheduler_built", PluginError("no"), PluginError, "no"),
        ("scheduler_built", ValueError("oh"), PluginError, "'failing', hook 'scheduler_built'"),
        ("request_arrived", ValueError("oh"), PolicyError, "'request_arrived' for request 'r"),
        ("request_arrived", RequestError("not you"), PluginError, "under way: not you"),
        ("order_waiting", ValueError("oh"), PolicyError, "'order_waiting' for request 'r"),
    ],
)
def test_a_stack_that_fails_leaves_the_old_one_in_place(
    hook: str, raised: Exception, error: type[Exception], match: str
) -> None:
    fails(error, match, *stack(Failing(hook, raised)))
    fails(error, match, *stack(Failing(hook, raised)), async_scheduling=True)


def test_a_stack_that_cannot_be_built_leaves_the_old_one_in_place() -> None:
    fails(PluginError, "no plugin is called 'nobody'", "nobody")
    fails(PluginError, "two|both|owner", *FCFS, "kv_blocks")


@define(eq=False)
class Small:
    """Blocks for one token each, and few of them."""

    @hookimpl(wrapper=True)
    def kv_view(self) -> Any:
        view = yield
        view._owner.num_lookahead_tokens = 200
        return view


def test_a_request_that_would_never_fit_keeps_the_old_stack() -> None:
    fails(PluginError, "can never fit", *FCFS, Small())


def test_an_instance_serves_one_stack() -> None:
    newest = Newest()
    run = swapped(stack(newest))
    with pytest.raises(PluginError, match="'newest' is in the stack that it would replace"):
        run.bench.scheduler.swap(stack(newest))


def test_a_step_in_flight_is_no_time_for_a_swap() -> None:
    b = bench(FCFS)
    b.add("r", 5, 2)
    b.schedule()
    with pytest.raises(HeadwayError, match="1 steps in flight"):
        b.scheduler.swap(PRIORITY)


def test_no_swap_while_transfers_use_blocks() -> None:
    offloading = ("kv_blocks(enable_prefix_caching=False)", *FCFS[1:], "kv_offload(load='async')")
    run = swapped(offloading, blocks=20)
    run.bench.runner.delay = lambda: 3
    num_refused = num_swaps = 0
    for step in range(40):
        if step % 4 == 0:
            run.bench.add(f"r{step}", prompt(20), 3)
        run.advance()
        if run.bench.scheduler.has_transfers:
            num_refused += 1
            with pytest.raises(HeadwayError, match="transfers"):
                run.bench.scheduler.swap(FCFS)
        elif step % 10 > 7:
            num_swaps += 1
            run.swap(offloading)
    run.finish()
    loads = [event for event in run.bench.scheduler.events if event.kind == "loaded"]
    assert num_refused and num_swaps and loads


def test_a_config_is_kept() -> None:
    run = swapped(FCFS)
    config = run.bench.scheduler.config
    run.swap(["fcfs"])
    assert run.bench.scheduler.config is config and isinstance(config, SchedulerConfig)
