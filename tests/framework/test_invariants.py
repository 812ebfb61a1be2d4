"""Books that were spoilt between two calls, and plugins that keep what has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from framework import Request, Scheduler, SchedulerConfig, Status, hookimpl
from framework.testing import InvariantError, Invariants, TokenRunner, make_requests, simulate
from plugins.kv_blocks import KvBlocks

if TYPE_CHECKING:
    from collections.abc import Callable

STACK = ("chunked_prefill", "fcfs")
SMALL = SchedulerConfig(
    max_num_batched_tokens=32, max_num_seqs=2, max_model_len=64, block_size=4, num_blocks=13
)


@define(eq=False)
class Started:
    """A scheduler between two steps: r0 and r1 run with a token each, r2 waits."""

    pool: KvBlocks = field(factory=KvBlocks)
    scheduler: Scheduler = field(init=False)
    invariants: Invariants = field(init=False)
    runner: TokenRunner = field(factory=lambda: TokenRunner(SMALL.block_size))

    def __attrs_post_init__(self) -> None:
        self.scheduler = Scheduler(SMALL, [self.pool, *STACK])
        self.invariants = Invariants(self.scheduler)
        for request in make_requests(3):
            self.scheduler.add_request(request)
        output = self.scheduler.schedule()
        self.invariants.after_schedule(output)
        result = self.scheduler.update_from_output(output, self.runner.execute(output))
        self.invariants.after_update(result)

    def request(self, name: str) -> Request:
        return self.scheduler.requests[name]

    @property
    def running(self) -> Any:
        """The very list that the scheduler keeps."""
        return self.scheduler.running


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda s: setattr(s.request("r0"), "status", Status.PREEMPTED), "'r0'.*among the running"),
        (lambda s: setattr(s.request("r2"), "status", Status.RUNNING), "'r2'.*among the waiting"),
        (lambda s: setattr(s.request("r0"), "num_computed_tokens", -1), "'r0'.*out of range"),
        (lambda s: setattr(s.request("r0"), "num_computed_tokens", 10), "'r0'.*out of range"),
        (lambda s: s.request("r1").set_placeholders(1), "'r1'.*no step is in flight"),
        (lambda s: s.request("r1").spec_token_ids.append(5), "'r1'.*not the known ones"),
        (lambda s: s.running.append(s.request("r2")), "3 requests run, max_num_seqs is 2"),
        (lambda s: s.running.pop(), "running and waiting are"),
        (lambda s: s.scheduler.requests.pop("r2"), r"unfinished are \['r0', 'r1'\]"),
        (lambda s: s.pool.pool.ref_counts.__setitem__(1, 2), "reference counts differ"),
        (lambda s: s.pool.pool.give_back([1]), "reference counts differ"),
        (lambda s: s.pool.pool._queue.popitem(), "the free queue"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_spoilt_books_are_seen(spoil: Callable[[Started], object], sentence: str) -> None:
    started = Started()
    started.invariants.check_state()
    spoil(started)
    with pytest.raises(InvariantError, match=sentence):
        started.invariants.check_state()


def test_two_results_of_one_request_are_seen() -> None:
    started = Started()
    output = started.scheduler.schedule()
    started.invariants.after_schedule(output)
    result = started.scheduler.update_from_output(output, started.runner.execute(output))
    assert result.req_ids == ["r0", "r1"]
    result.req_ids[1] = "r0"
    with pytest.raises(InvariantError, match="a request has two results"):
        started.invariants.after_update(result)


def test_a_step_in_flight_is_not_idle() -> None:
    started = Started()
    for name in list(started.scheduler.requests):
        started.scheduler.abort(name)
    output = started.scheduler.schedule()
    started.invariants.after_schedule(output)
    with pytest.raises(InvariantError, match="a step is in flight"):
        started.invariants.at_idle()
    result = started.scheduler.update_from_output(output, started.runner.execute(output))
    started.invariants.after_update(result)
    started.invariants.at_idle()


@define(eq=False)
class Notes:
    """Notes every request in `seen`."""

    note: Callable[[Any, Request], object]
    seen: Any

    @hookimpl
    def request_finished(self, request: Request) -> None:
        self.note(self.seen, request)


class MoreNotes(Notes):
    """Its fields are those of its base."""

    __slots__ = ()


@pytest.mark.parametrize("kind", [Notes, MoreNotes])
@pytest.mark.parametrize(
    ("seen", "note"),
    [
        ({}, lambda seen, request: seen.update({request: 1})),
        ({}, lambda seen, request: seen.update({request.request_id: request})),
        (set(), lambda seen, request: seen.add(request)),
        ({}, lambda seen, request: seen.update({request.request_id: 1})),
        (set(), lambda seen, request: seen.add(request.request_id)),
    ],
    ids=["key", "value", "set", "id as key", "set of ids"],
)
def test_a_plugin_that_keeps_requests_is_seen(
    kind: type[Notes], seen: Any, note: Callable[[Any, Request], object]
) -> None:
    stack = ["kv_blocks", *STACK, kind(note, type(seen)())]
    with pytest.raises(InvariantError, match=r"keeps requests in 'seen': \[(Request\()?'r0'"):
        simulate(stack, make_requests(1), SMALL)


def test_a_log_of_requests_is_no_fault() -> None:
    log: list[Request] = []
    simulate(["kv_blocks", *STACK, Notes(list.append, log)], make_requests(2), SMALL)
    assert [request.request_id for request in log] == ["r0", "r1"]
