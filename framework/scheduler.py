"""The step loop.

A request has tokens it knows (prompt, output, drafts) and tokens that are computed. Each step
hands out tokens so that the computed catch up with the known; there is no prefill phase and no
decode phase. The loop keeps the books; every decision is a hook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from framework import opening, places, swapping, update
from framework.admission import admit, next_waiting
from framework.arrival import check_new
from framework.assembly import Assembly, assemble
from framework.blaming import blamed
from framework.books import Counters, Event
from framework.clock import MonotonicClock
from framework.config import SchedulerConfig
from framework.errors import PolicyError
from framework.handout import hand_out
from framework.hooks import NOTHING
from framework.protocols import Clock, KvView, LatencyModel
from framework.request import Request, Status
from framework.room import count_tokens, find_blocks, find_encoder_room
from framework.stack import DEFAULT_STACK, load_plugin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from framework.output import RunnerOutput, SchedulerOutput, StepResult
    from framework.plan import StepPlan
    from framework.timing import HookTime, Times
    from framework.waiting import WaitingQueue


@final
class Scheduler:
    """Plans steps for one model replica.

    Args:
        config: the limits.
        plugins: the stack, names or instances; the last is asked first.
        clock: tells the time in seconds; real time by default.
        latency: what policies may predict with, or None.
        trace: call hooks through pluggy, so that its call monitoring sees them (slow).
        timed: time every call of every hook, for `hook_times`; not with `trace`.

    Raises:
        PluginError: the stack cannot be built.
    """

    def __init__(
        self,
        config: SchedulerConfig | None = None,
        plugins: Sequence[object] = DEFAULT_STACK,
        *,
        clock: Clock | None = None,
        latency: LatencyModel | None = None,
        trace: bool = False,
        timed: bool = False,
    ) -> None:
        self.config = config or SchedulerConfig()
        self._clock = clock or MonotonicClock()
        self._latency = latency
        self._trace = trace
        self._times: Times | None = {} if timed else None
        self._adopt(self._assembled(plugins))

    def _assembled(self, plugins: Sequence[object]) -> Assembly:
        return assemble(
            self.config, plugins, self._clock, self._latency, trace=self._trace, times=self._times
        )

    def _adopt(self, assembly: Assembly) -> None:
        self._books = assembly.books
        self._manager = assembly.manager
        self._around = assembly.around
        self._counts_always = assembly.counts_always
        self.probes = assembly.probes

    def swap(self, plugins: Sequence[object]) -> None:
        """Put another stack in the place of this one; every unfinished request goes on.

        Nothing counts as computed any more: who ran waits as if preempted, and is asked about
        before those who waited, each in its order. What the old plugins stored on requests is
        gone, the new ones hear `request_arrived` of each. The books (totals, events, numbers of
        steps, ends not told yet) go on; the old plugins are not called again.

        Args:
            plugins: the new stack, the last asked first; instances must be new ones, unless they
                are made to last (`framework.swapping.Lasting`).

        Raises:
            PluginError: the stack cannot be built, or cannot serve a request that is under way.
            PolicyError: a new plugin raised.
            HeadwayError: a step is in flight, or `has_transfers`.
            In every case the old stack stays and nothing has changed.
        """
        swapping.check_quiet(self._books)
        loaded = [load_plugin(spec) for spec in plugins]
        lasting = swapping.find_lasting((plugin for _, plugin in self.plugins), loaded)
        new = self._assembled(loaded)
        names = [name for name, _ in new.manager.list_name_plugin()]
        try:
            swapping.carry_over(self._books, new.books, names, lasting)
        except Exception as error:
            raise blamed(error, new.manager) from error
        self._adopt(new)

    def add_request(self, request: Request) -> None:
        """Accept a request into the waiting queue.

        Raises:
            RequestError: it is refused (duplicate id, empty or over-long prompt, a length that
                never fits the pool, a plugin's refusal); nothing was changed.
        """
        books = self._books
        check_new(books, request)
        try:
            books.hooks.request_arrived(request, books.waiting)
            rank = books.waiting.rank_of(request, Status.WAITING)
        except Exception as error:
            raise blamed(error, self._manager) from error
        request.num_slots = request.num_slots if books.kv is None else 0
        books.requests[request.request_id] = request
        books.waiting.put_back(request, rank)
        if books.hooks.is_ready is not NOTHING:
            books.waiting.park(request)
        books.note("arrived", request)

    def abort(self, request_id: str) -> bool:
        """End a request now. Unknown and finished ids are ignored; True if one was ended."""
        request = self._books.requests.get(request_id)
        if request is None:
            return False
        try:
            places.finish(self._books, request, Status.FINISHED_ABORTED)
        except Exception as error:
            raise blamed(error, self._manager) from error
        return True

    def schedule(self) -> SchedulerOutput:
        """Plan one step. The plan counts as done at once and is to be run whole, in order.

        Raises:
            PolicyError: a plugin raised or gave a wrong answer; the plan was dropped.
            StallError: work remains that can never be scheduled.
        """
        books = self._books
        plan = opening.open_plan(books, self._around)
        try:
            opening.begin(books, plan)
            order = iter(opening.order_running(books, plan))
            while (request := self._next_running(order, plan)) and plan.budget_left:
                if request in plan.lost:
                    continue
                num_tokens = request.num_known_tokens - request.num_computed_tokens
                if num_tokens != 1 or self._counts_always:
                    num_tokens = count_tokens(books, request, None, plan)
                if not num_tokens:
                    continue
                if request.num_computed_tokens + num_tokens > request.num_slots:
                    blocks = find_blocks(books, request, num_tokens, None, plan)
                    if blocks is None and request.status is not Status.RUNNING:
                        break
                    if blocks is None:
                        continue
                    plan.new_blocks[request] = blocks
                plan.add(request, num_tokens)
                find_encoder_room(books, request, plan)
            plan.num_running_planned = len(plan.requests)
            if not plan.memory_refused:
                while (waiter := next_waiting(books, plan)) is not None:
                    admit(books, waiter, plan)
            return hand_out(books, plan)
        except Exception as error:
            fault = blamed(error, self._manager, plan.step)
            for further in places.drop(books, plan):
                fault.add_note(f"and while the plan was dropped: {further!r}")
            raise fault from error

    def update_from_output(
        self, output: SchedulerOutput, runner_output: RunnerOutput
    ) -> StepResult:
        """Apply the results of the oldest plan in flight.

        Raises:
            RunnerError: the results do not match the plan.
            PolicyError: a plugin raised; the results are in the books and in `error.result`.
        """
        errors: list[Exception] = []
        result = update.apply(self._books, output, runner_output, errors)
        if errors:
            fault = blamed(errors[0], self._manager, output.step)
            if isinstance(fault, PolicyError):
                fault.result = result
            raise fault from errors[0]
        return result

    def reset_prefix_cache(self) -> bool:
        """Forget every cached block; False, and nothing done, while requests hold blocks.

        Raises:
            PolicyError: the owner of blocks raised.
        """
        try:
            is_done = self._books.hooks.reset_prefix_cache()
        except Exception as error:
            raise blamed(error, self._manager) from error
        return self._books.kv is None or is_done is True

    def has_unfinished_requests(self) -> bool:
        """True while a request waits or runs."""
        return bool(self._books.requests)

    def has_requests(self) -> bool:
        """True while a step is worth planning: requests, ended ids to hand out, transfers."""
        books = self._books
        return bool(books.requests or books.finished_ids or books.held or books.aborted_loads)

    @property
    def has_transfers(self) -> bool:
        """True while external KV moves between blocks and elsewhere: `swap` must wait."""
        return swapping.has_transfers(self._books)

    def hook_times(self) -> list[HookTime]:
        """Calls and seconds of each hook of each plugin, of all stacks so far; empty if the
        scheduler is not `timed`."""
        times = (self._times or {}).values()
        return [attrs.evolve(total) for total in times if total.num_calls]

    @property
    def requests(self) -> Mapping[str, Request]:
        """{id: request}, everyone unfinished."""
        return self._books.requests

    @property
    def running(self) -> Sequence[Request]:
        """Running requests in order of admission."""
        return self._books.running

    @property
    def waiting(self) -> WaitingQueue:
        """The waiting queue."""
        return self._books.waiting

    def waiting_requests(self) -> list[Request]:
        """Every waiter: those that hold loaded or loading blocks first, then the queue in order."""
        return self._books.holders.everyone() + self._books.waiting.everyone()

    @property
    def kv(self) -> KvView | None:
        """Face of the owner of blocks, or None."""
        return self._books.kv

    @property
    def clock(self) -> Clock:
        """The scheduler's clock."""
        return self._books.clock

    @property
    def counters(self) -> Counters:
        """Totals since the scheduler was built, over all its stacks."""
        return self._books.counters

    @property
    def events(self) -> Sequence[Event]:
        """The event log: arrivals, admissions, preemptions, ends, ...; the newest 100,000."""
        return self._books.events

    @property
    def num_steps_in_flight(self) -> int:
        """Plans handed out whose results have not come back."""
        return len(self._books.in_flight)

    @property
    def plugins(self) -> list[tuple[str, object]]:
        """(name, instance) of every plugin, in the order of the stack."""
        return list(self._manager.list_name_plugin())

    def _next_running(self, order: Iterator[Request], plan: StepPlan) -> Request | None:
        """The next running request that needs a decision."""
        return next(order, None) if self._counts_always else plan.add_plain(order)
