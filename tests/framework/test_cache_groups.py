"""An owner with two cache groups, of other block sizes and one with a window, runs unchanged.

Its `allocate` gives a tuple of lists, one a group. The core, the policies and the checks pass it
on unread; the runner here keeps a table a group and looks at what each group's attention reads.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define, field

from framework import (
    PreemptMode,
    Request,
    RequestError,
    RunnerOutput,
    Scheduler,
    SchedulerConfig,
    hookimpl,
)
from framework.testing import Invariants, make_requests
from plugins.chunked_prefill import ChunkedPrefill
from plugins.fcfs import Fcfs
from plugins.priority import Priority

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework import KvView, SchedulerOutput, StepView

SIZES: Final = (4, 2)
WINDOW: Final = 6
"""Tokens that the second group's attention reads, the newest included."""
BUDGET: Final = 12
Table = tuple[list[int], list[int]]


def first_read(position: int) -> int:
    """First position that the second group reads for a token at `position`."""
    return max(0, position + 1 - WINDOW)


@define(eq=False)
class TwoGroups:
    """Owner of one pool for both groups; blocks that leave the window go back (0 in the table)."""

    num_blocks: int = 0
    free: list[int] = field(factory=list)
    tables: dict[Request, Table] = field(factory=dict)

    @hookimpl
    def kv_view(self, config: SchedulerConfig) -> KvView:
        self.num_blocks = config.num_blocks - 1
        self.free = list(range(1, config.num_blocks))
        return View(self)

    @hookimpl
    def allocate(self, request: Request, num_new_tokens: int) -> Table | bool:
        table = self.tables.get(request) or ([], [])
        end = request.num_computed_tokens + num_new_tokens
        stale = table[1][: first_read(request.num_computed_tokens) // SIZES[1]]
        counts = [
            max(0, -(-end // size) - len(blocks)) for size, blocks in zip(SIZES, table, strict=True)
        ]
        if sum(counts) > len(self.free) + sum(map(bool, stale)):
            return False
        self.free += filter(None, stale)
        table[1][: len(stale)] = [0] * len(stale)
        new = (self.take(counts[0]), self.take(counts[1]))
        for group in (0, 1):
            table[group].extend(new[group])
        self.tables[request] = table
        request.num_slots = self.reach(table)
        return new

    def take(self, count: int) -> list[int]:
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def reach(self, table: Table) -> int:
        return min(size * len(blocks) for size, blocks in zip(SIZES, table, strict=True))

    @hookimpl
    def withdraw(self, request: Request, block_ids: Table) -> None:
        table = self.tables[request]
        for group in (0, 1):
            self.free += block_ids[group]
            del table[group][len(table[group]) - len(block_ids[group]) :]
        request.num_slots = self.reach(table)

    @hookimpl
    def release(self, request: Request) -> None:
        for blocks in self.tables.pop(request, ()):
            self.free += filter(None, blocks)


@define(eq=False)
class View:
    """Face of TwoGroups."""

    owner: TwoGroups

    @property
    def num_total_blocks(self) -> int:
        return self.owner.num_blocks

    @property
    def num_free_blocks(self) -> int:
        return len(self.owner.free)

    @property
    def max_num_tokens(self) -> int:
        fitting = (n for n in range(10_000) if self.num_blocks_needed(n) > self.num_total_blocks)
        return next(fitting) - 1

    def num_blocks_needed(self, num_tokens: int) -> int:
        in_window = min(num_tokens, WINDOW + BUDGET + SIZES[1])
        return -(-num_tokens // SIZES[0]) + -(-in_window // SIZES[1])

    def block_ids(self, request: Request) -> tuple[list[int], ...]:
        return tuple(list(blocks) for blocks in self.owner.tables.get(request, ()))

    def num_freeable_blocks(self, request: Request) -> int:
        return sum(bool(block) for blocks in self.block_ids(request) for block in blocks)

    def num_shared_blocks(self, request: Request) -> int:
        return 0

    def peek_prefix(self, request: Request) -> int:
        return 0

    def num_common_prefix_blocks(self, running: Sequence[Request]) -> int:
        return 0

    def computed_block_ids(self, request: Request) -> tuple[list[int], ...]:
        return self.block_ids(request)

    def fits(self, request: Request, step: StepView) -> bool:
        return self.num_blocks_needed(request.num_tokens) <= self.num_free_blocks

    def can_withdraw(self, request: Request) -> bool:
        return True


@define(eq=False)
class Pauser:
    """The displaced keep their blocks."""

    @hookimpl
    def preempt_mode(self, displaced: bool) -> PreemptMode | None:
        return PreemptMode.KEEP if displaced else None


@define(eq=False)
class GroupRunner:
    """Keeps a table a group; a slot holds (request, position) of what was computed into it."""

    tables: dict[str, list[list[int]]] = field(factory=dict)
    slots: dict[tuple[int, int], tuple[str, int]] = field(factory=dict)
    num_prompt: dict[str, int] = field(factory=dict)
    num_sampled: dict[str, int] = field(factory=dict)

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        cached, starts = output.scheduled_cached_reqs, {}
        for new in output.scheduled_new_reqs:
            name = new.request_id
            self.tables[name] = [list(blocks) for blocks in new.block_ids]
            self.num_prompt[name], self.num_sampled[name] = len(new.prompt_token_ids), 0
            starts[name] = new.num_computed_tokens
        for name, more in cached.new_block_ids.items():
            if name in cached.resumed_req_ids:
                self.tables[name] = [[], []]
            for group in (0, 1):
                self.tables[name][group].extend(more[group])
        starts.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        sampled = []
        for name, count in output.num_scheduled_tokens.items():
            self.compute(name, starts[name], starts[name] + count)
            sampled.append(self.sample(name, starts[name] + count))
        return RunnerOutput(sampled)

    def compute(self, name: str, start: int, end: int) -> None:
        """Write every token's slot in each group, and look at what its attention reads."""
        for group, size in enumerate(SIZES):
            table = self.tables[name][group]
            for place in range(start, end):
                self.slots[table[place // size], place % size] = (name, place)
            first = first_read(start) if group else 0
            for place in range(first, end):
                found = self.slots[table[place // size], place % size]
                assert found == (name, place), f"{name} finds {found} at {place}, group {group}"

    def sample(self, name: str, end: int) -> list[int]:
        """Output tokens are 1, 2, 3, ..."""
        if end < self.num_prompt[name] + self.num_sampled[name]:
            return []
        self.num_sampled[name] += 1
        return [self.num_sampled[name]]


def displacing() -> Priority:
    return Priority(displace=True)


def run(stack: list[object], num_requests: int, **limits: Any) -> Scheduler:
    """Run to the end with every check, requests of a falling priority number one a step."""
    config = SchedulerConfig(max_num_batched_tokens=BUDGET, block_size=SIZES[0], **limits)
    scheduler = Scheduler(config, [TwoGroups(), ChunkedPrefill(cap=7), *stack])
    invariants, runner, depth = Invariants(scheduler), GroupRunner(), 1 + config.async_scheduling
    todo = deque(make_requests(num_requests, prompt_len=[9, 22, 3, 14], max_tokens=[8, 3, 12]))
    done: list[Request] = list(todo)
    in_flight: deque[tuple[SchedulerOutput, RunnerOutput]] = deque()
    while todo or in_flight or scheduler.has_requests():
        if todo:
            todo[0].priority = len(todo)
            scheduler.add_request(todo.popleft())
        if scheduler.has_requests():
            output = scheduler.schedule()
            invariants.after_schedule(output)
            in_flight.append((output, runner.execute(output)))
        if len(in_flight) == depth or not scheduler.has_requests():
            invariants.after_update(scheduler.update_from_output(*in_flight.popleft()))
    invariants.at_idle()
    for request in done:
        assert request.output_token_ids == list(range(1, request.sampling_params.max_tokens + 1))
    return scheduler


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("policy", [[Fcfs], [Priority], [displacing], [displacing, Pauser]])
def test_tables_of_two_groups_hold_what_each_group_reads(policy: list[Any], is_async: bool) -> None:
    limits = {"num_blocks": 24, "max_num_seqs": 3, "max_model_len": 40}
    scheduler = run([one() for one in policy], 9, async_scheduling=is_async, **limits)
    assert scheduler.counters.num_preemptions > 0
    kept = [event for event in scheduler.events if event.detail == "keep"]
    assert bool(kept) == (Pauser in policy)


def test_never_fits_counts_both_groups() -> None:
    config = SchedulerConfig(num_blocks=8, block_size=SIZES[0], max_num_batched_tokens=BUDGET)
    scheduler = Scheduler(config, [TwoGroups(), ChunkedPrefill(), Fcfs()])
    (request,) = make_requests(1, prompt_len=10, max_tokens=8)
    with pytest.raises(RequestError, match=r"17 tokens .* need 14 KV blocks of 4, the pool has 7"):
        scheduler.add_request(request)
