"""What must hold after every step, whatever the policies: budget, places, blocks, ends.

The checks read public state only. They see no unfairness: a request that is skipped for ever, an
inversion or a needless preemption needs a test of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from framework.request import UNLIMITED, Request, Status
from framework.stack import implemented_hooks
from framework.update import REASONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from framework.books import Event
    from framework.output import SchedulerOutput, StepResult
    from framework.scheduler import Scheduler

WAITING: Final = frozenset(
    {Status.WAITING, Status.WAITING_FOR_REMOTE_KVS, Status.PREEMPTED, Status.PAUSED}
)
UNREPORTED: Final = frozenset({"abort"})
"""Reasons of ends that no StepResult tells: the caller brought them about."""


class InvariantError(AssertionError):
    """The books of a scheduler do not add up."""


class Invariants:
    """Checks one scheduler; build it before the first request is added.

    Call `after_schedule` and `after_update` with what each call gave, `after_swap` after a swap,
    `check_state` at any other moment, `at_idle` when nothing is left. Each raises InvariantError
    with a sentence.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._learn_stack()
        self._last_event: Event | None = None
        self._names: set[str] = set()
        self._num_live: Counter[str] = Counter()
        self._num_finished: Counter[str] = Counter()
        self._not_handed_out: list[str] = []
        self._not_reported: list[tuple[str, str]] = []
        self._holders: set[Request] = set()
        self._in_flight: deque[bool] = deque()
        self._num_empty_steps = 0
        self._num_ended_before = 0

    def after_schedule(self, output: SchedulerOutput) -> None:
        """Check the plan and the state that it left."""
        self.check_state()
        self._check_plan(output)
        for name, computed, num_tokens in _entries(output):
            self._check_entry(output.step, name, computed, num_tokens)
        self._check_progress(output)
        self._in_flight.append(bool(output.num_scheduled_tokens))
        handed_out, self._not_handed_out = self._not_handed_out, []
        _expect(
            sorted(handed_out) == sorted(output.finished_req_ids),
            f"step {output.step}: finished_req_ids are {sorted(output.finished_req_ids)}, "
            f"ended since the last plan: {sorted(handed_out)}",
        )

    def after_update(self, result: StepResult) -> None:
        """Check the result and the state that it left."""
        self._in_flight.popleft()
        self.check_state()
        expected, self._not_reported = self._not_reported, []
        told = set(result.finish_reasons.items())
        _expect(
            told == set(expected),
            f"step {result.step}: the result ends {sorted(told)}, the books {sorted(expected)}",
        )
        names = result.req_ids
        _expect(len(set(names)) == len(names), f"step {result.step}: a request has two results")

    def after_swap(self) -> None:
        """Another stack is in place: nobody runs or holds blocks."""
        self._learn_stack()
        self.check_state()
        kv = self.scheduler.kv
        _expect(not self.scheduler.running, "swapped, and somebody runs")
        free = kv is None or kv.num_free_blocks == kv.num_total_blocks
        _expect(free, "swapped, and blocks are held")

    def _learn_stack(self) -> None:
        plugins = self.scheduler.plugins
        hooks = {hook for _, plugin in plugins for hook in implemented_hooks(plugin)}
        self._has_external = bool(hooks & {"lookup_external", "may_release"})

    def check_state(self) -> None:
        """Places, ends and blocks, between any two calls."""
        self._read_events()
        self._check_places()
        self._check_blocks()

    def at_idle(self) -> None:
        """Nothing is left: no request, no block, no entry of a request anywhere."""
        self.check_state()
        scheduler, kv = self.scheduler, self.scheduler.kv
        _expect(not scheduler.requests, f"idle, but {sorted(scheduler.requests)} are unfinished")
        _expect(not scheduler.has_requests(), "idle, but has_requests() is True")
        _expect(not scheduler.num_steps_in_flight, "idle, but a step is in flight")
        _expect(not self._not_reported, f"idle, but no result told of {self._not_reported}")
        if kv is not None:
            held = kv.num_total_blocks - kv.num_free_blocks
            _expect(held == 0, f"idle, but {held} of {kv.num_total_blocks} blocks are not free")
        for name, plugin in scheduler.plugins:
            for field, value in _fields(plugin):
                kept = _requests_in(value, self._names)
                _expect(not kept, f"idle, but plugin {name!r} keeps requests in {field!r}: {kept}")

    def _read_events(self) -> None:
        """Arrivals and ends since the last look: each request ends once, with one reason."""
        for event in self._new_events():
            name = event.request_id
            if event.kind == "arrived":
                self._names.add(name)
                self._num_live[name] += 1
            elif event.kind == "finished":
                reason = REASONS[Status(event.detail)]
                self._num_live[name] -= 1
                self._num_finished[event.detail] += 1
                self._not_handed_out.append(name)
                if reason not in UNREPORTED:
                    self._not_reported.append((name, reason))
            count = self._num_live[name]
            _expect(count in (0, 1), f"request {name!r} {event.kind}: it is live {count} times")
            if not count:
                del self._num_live[name]
        live, counted = set(self.scheduler.requests), self.scheduler.counters.finished
        if live != self._num_live.keys():
            raise InvariantError(
                f"unfinished are {sorted(live)}, arrived and not ended {sorted(self._num_live)}"
            )
        if counted != self._num_finished:
            raise InvariantError(
                f"the counters tell of {dict(counted)}, the events of {dict(self._num_finished)}"
            )

    def _new_events(self) -> list[Event]:
        new: list[Event] = []
        for event in reversed(self.scheduler.events):
            if event is self._last_event:
                break
            new.append(event)
        if new:
            self._last_event = new[0]
        return new[::-1]

    def _check_places(self) -> None:
        scheduler = self.scheduler
        running, waiting = list(scheduler.running), scheduler.waiting_requests()
        most = scheduler.config.max_num_seqs
        _expect(len(running) <= most, f"{len(running)} requests run, max_num_seqs is {most}")
        places = sorted(request.request_id for request in (*running, *waiting))
        if places != sorted(scheduler.requests):
            raise InvariantError(
                f"running and waiting are {places}, unfinished {sorted(scheduler.requests)}"
            )
        for request in running:
            if request.status is not Status.RUNNING:
                raise InvariantError(f"{request!r} stands among the running")
        for request in waiting:
            if request.status not in WAITING:
                raise InvariantError(f"{request!r} stands among the waiting")
        for request in scheduler.requests.values():
            self._check_counts(request, in_flight=bool(scheduler.num_steps_in_flight))

    def _check_counts(self, request: Request, *, in_flight: bool) -> None:
        extra = request.num_output_placeholders + len(request.spec_token_ids)
        wrong = ""
        if request.num_known_tokens != request.num_tokens + extra:
            wrong = "tokens, placeholders and drafts are not the known ones"
        elif request.num_output_placeholders and not in_flight:
            wrong = "it has placeholders, and no step is in flight"
        most = UNLIMITED if in_flight else request.num_known_tokens  # drafts may be rejected yet
        if not 0 <= request.num_computed_tokens <= most:
            wrong = "its computed tokens are out of range"
        if wrong:
            raise InvariantError(f"{request!r}: {wrong}")

    def _check_blocks(self) -> None:
        """Whoever is live or has just ended may hold blocks; nobody else does."""
        kv = self.scheduler.kv
        if kv is None:
            return
        check_integrity = getattr(kv, "check_integrity", None)
        if check_integrity is not None:
            try:
                check_integrity()
            except AssertionError as error:
                raise InvariantError(f"the pool: {error}") from error
        self._holders.update(self.scheduler.requests.values())
        tables = {request: list(kv.block_ids(request)) for request in self._holders}
        self._holders = {request for request in self._holders if tables[request]}
        ended = [request for request in self._holders if request.is_finished]
        _expect(self._has_external or not ended, f"{ended} have ended and hold blocks, unasked for")
        used = kv.num_total_blocks - kv.num_free_blocks
        held = {block for table in tables.values() for block in _flat(table)}
        _expect(len(held) == used, f"{used} blocks are not free, the tables hold {len(held)}")

    def _check_plan(self, output: SchedulerOutput) -> None:
        config, planned = self.scheduler.config, output.num_scheduled_tokens
        step, total = output.step, sum(planned.values())
        _expect(
            total == output.total_num_scheduled_tokens <= config.token_budget,
            f"step {step}: {total} tokens, told {output.total_num_scheduled_tokens}, "
            f"budget {config.token_budget}",
        )
        _expect(all(count >= 1 for count in planned.values()), f"step {step}: an empty entry")
        most = config.max_num_seqs
        _expect(len(planned) <= most, f"step {step}: {len(planned)} entries, max_num_seqs {most}")
        told = [name for name, _, _ in _entries(output)]
        _expect(
            sorted(told) == sorted(planned),
            f"step {step}: new and cached requests are {told}, planned are {list(planned)}",
        )
        lost = set(output.preempted_req_ids) & set(planned)
        _expect(not lost, f"step {step}: {sorted(lost)} lost their place and are planned")

    def _check_entry(self, step: int, name: str, computed: int, num_tokens: int) -> None:
        scheduler, kv = self.scheduler, self.scheduler.kv
        request = scheduler.requests.get(name)
        runs = request is not None and request.status is Status.RUNNING
        _expect(runs, f"step {step}: {name!r} is planned and does not run: {request!r}")
        assert request is not None
        end = computed + num_tokens
        _expect(
            request.num_computed_tokens == end <= scheduler.config.max_model_len,
            f"step {step}: {name!r} has {computed} computed, {num_tokens} scheduled, "
            f"{request.num_computed_tokens} in the books; max_model_len "
            f"{scheduler.config.max_model_len}",
        )
        table = [] if kv is None else kv.block_ids(request)
        if kv is not None and isinstance(table, list):  # of several groups each has its own size
            room = len(table) * scheduler.config.block_size
            _expect(room >= end, f"step {step}: {name!r} has slots for {room} of {end} tokens")

    def _check_progress(self, output: SchedulerOutput) -> None:
        """Never two steps in a row without progress, unless something outside is awaited."""
        num_ended = sum(self._num_finished.values())
        moved = bool(output.num_scheduled_tokens or output.preempted_req_ids)
        moved = moved or num_ended > self._num_ended_before
        self._num_ended_before = num_ended
        if moved or not self.scheduler.requests or self._awaits_event():
            self._num_empty_steps = 0
            return
        self._num_empty_steps += 1
        _expect(
            self._num_empty_steps < 2,
            f"step {output.step}: the second empty one in a row, with "
            f"{sorted(self.scheduler.requests)} unfinished and nothing awaited",
        )

    def _awaits_event(self) -> bool:
        """Results, a request that gets ready, or external KV; an empty plan brings nothing."""
        return any(self._in_flight) or bool(self.scheduler.waiting.parked) or self._has_external


def _entries(output: SchedulerOutput) -> Iterable[tuple[str, int, int]]:
    """(id, computed before this step, tokens in it) of each request of a plan."""
    cached = output.scheduled_cached_reqs
    starts = [(new.request_id, new.num_computed_tokens) for new in output.scheduled_new_reqs]
    starts += zip(cached.req_ids, cached.num_computed_tokens, strict=True)
    return [(name, start, output.num_scheduled_tokens.get(name, 0)) for name, start in starts]


def _flat(table: Iterable[Any]) -> Iterable[Any]:
    """Blocks of a table, of all its groups; 0 stands for one that has gone back already."""
    for item in table:
        yield from filter(None, item if isinstance(item, list | tuple) else [item])


def _requests_in(value: Any, names: set[str]) -> list[Request | str]:
    """Requests in a map or set, or their ids as its keys; a list may be a log."""
    if not isinstance(value, dict | set | frozenset):
        return []
    kept: list[Request | str] = [key for key in value if isinstance(key, str) and key in names]
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return kept + [item for item in items if isinstance(item, Request)]


def _fields(plugin: object) -> Iterable[tuple[str, Any]]:
    plugin = getattr(plugin, "__wrapped__", plugin)  # of a proxy the plugin that it stands for
    slots = [name for kind in type(plugin).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [*getattr(plugin, "__dict__", {}), *slots]
    return [(name, getattr(plugin, name)) for name in names if hasattr(plugin, name)]


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvariantError(otherwise)
