"""The step loop.

A request has tokens it knows (prompt, output, drafts) and tokens that are computed. Each step
hands out tokens so that the computed catch up with the known; there is no prefill phase and no
decode phase. The loop keeps the books; every decision is a hook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from framework import answers, places, update
from framework.admission import admit, next_waiting
from framework.arrival import check_new
from framework.books import Books, Counters, Event
from framework.clock import MonotonicClock
from framework.config import SchedulerConfig
from framework.errors import HeadwayError, PolicyError, RequestError
from framework.handout import hand_out
from framework.hooks import NOTHING, culprit, resolve
from framework.plan import StepPlan
from framework.protocols import Clock, KvView, LatencyModel
from framework.reports import Setup
from framework.request import Request, Status
from framework.room import count_tokens, find_blocks, find_encoder_room
from framework.stack import DEFAULT_STACK, build_manager, plugin_name
from framework.view import StepView, Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from framework.output import RunnerOutput, SchedulerOutput, StepResult
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
    ) -> None:
        self.config = config or SchedulerConfig()
        self._manager = build_manager(plugins)
        hooks = resolve(self._manager, trace=trace)
        books = Books(self.config, hooks, clock or MonotonicClock())
        kv = hooks.kv_view(self.config)
        books.kv = kv
        self._books = books
        self._counts_always = (
            self.config.async_scheduling
            or hooks.compute_num_new_tokens is not NOTHING
            or hooks.allocate_encoder is not NOTHING  # a chunk of one token may need room
        )
        self._around = Surroundings(
            self.config, kv, latency, lambda: books.running, lambda: books.loading, self._predict
        )
        self.probes: set[str] = set()
        hooks.scheduler_built(
            Setup(
                self.config,
                books.clock,
                books.waiting,
                kv,
                latency,
                self.probes,
                self._predict,
                plugin_name,
            )
        )

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
            raise self._blamed(error) from error
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
            raise self._blamed(error) from error
        return True

    def schedule(self) -> SchedulerOutput:
        """Plan one step. The plan counts as done at once and is to be run whole, in order.

        Raises:
            PolicyError: a plugin raised or gave a wrong answer; the plan was dropped.
            StallError: work remains that can never be scheduled.
        """
        books = self._books
        plan = self._open()
        try:
            self._begin(plan)
            order = iter(self._order_running(plan))
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
            blamed = self._blamed(error)
            for further in places.drop(books, plan):
                blamed.add_note(f"and while the plan was dropped: {further!r}")
            raise blamed from error

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
            blamed = self._blamed(errors[0])
            if isinstance(blamed, PolicyError):
                blamed.result = result
            raise blamed from errors[0]
        return result

    def has_unfinished_requests(self) -> bool:
        """True while a request waits or runs."""
        return bool(self._books.requests)

    def has_requests(self) -> bool:
        """True while a step is worth planning: requests, ended ids to hand out, transfers."""
        books = self._books
        return bool(books.requests or books.finished_ids or books.held or books.aborted_loads)

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
        """Totals since the scheduler was built."""
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

    def _open(self) -> StepPlan:
        books, config = self._books, self.config
        most = 2 if config.async_scheduling else 1
        if len(books.in_flight) >= most:
            raise HeadwayError(
                f"schedule() with {len(books.in_flight)} steps in flight; allowed: fewer than "
                f"{most} (async_scheduling is {config.async_scheduling}); call "
                "update_from_output() first"
            )
        plan = StepPlan(
            step=books.num_steps,
            now=books.clock.now(),
            budget=config.token_budget,
            budget_left=config.token_budget,
            num_slots=config.num_slots,
            num_running_at_start=len(books.running),
            num_waiting_at_start=books.num_waiting,
        )
        plan.view = StepView(plan, self._around)
        return plan

    def _begin(self, plan: StepPlan) -> None:
        books = self._books
        if books.hooks.is_ready is not NOTHING:
            for request in books.waiting.parked:
                self._poll(request)
        for request in books.awaiting:
            books.waiting.set_aside(request)
        rejected = books.hooks.pick_rejected(books.waiting, plan.view)
        if rejected:
            what = "requests of the waiting queue"
            chosen = answers.distinct(books.hooks, "pick_rejected", rejected, books.waiting, what)
            for request in chosen:
                plan.num_rejected += 1
                places.refuse(books, request, Status.FINISHED_REJECTED, "shed by pick_rejected")

    def _poll(self, request: Request) -> None:
        try:
            ready = self._books.hooks.is_ready(request)
        except RequestError as error:
            places.refuse(self._books, request, Status.FINISHED_ERROR, str(error))
        else:
            if ready is not False:
                self._books.waiting.unpark(request)

    def _order_running(self, plan: StepPlan) -> Iterable[Request]:
        books = self._books
        order = books.hooks.order_running(books.running, plan.view)
        if order is None:
            return tuple(books.running)
        what = "running requests"
        return answers.distinct(books.hooks, "order_running", order, set(books.running), what)

    def _next_running(self, order: Iterator[Request], plan: StepPlan) -> Request | None:
        """The next running request that needs a decision."""
        return next(order, None) if self._counts_always else plan.add_plain(order)

    def _predict(self, request: Request) -> float | None:
        return self._books.hooks.predict_output_len(request)

    def _blamed(self, error: Exception) -> Exception:
        """The error as the user should see it: a plugin's fault names the plugin and the hook."""
        if isinstance(error, HeadwayError):
            return error
        who = culprit(error, self._manager)
        if who is None:
            return error
        return PolicyError(
            plugin=who[0],
            hook=who[1],
            got=f"raised {type(error).__name__}: {error}",
            allowed="an answer, or None",
        )
