"""Books: who is where, who holds what, and what happened. State and its bookkeeping, no policy."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import define, field

from framework.hooks import NOTHING
from framework.protocols import KvView
from framework.request import Request
from framework.waiting import WaitingQueue, entry_order

if TYPE_CHECKING:
    from framework.config import SchedulerConfig
    from framework.hooks import Hooks
    from framework.output import SchedulerOutput
    from framework.plan import Admission, StepPlan
    from framework.protocols import Clock, Hit

EVENT_LOG_LENGTH = 100_000


class Event(NamedTuple):
    """One line of the event log: when, in which step, what, to whom, and a detail."""

    time: float
    step: int
    kind: str
    request_id: str
    detail: Any = None


@define
class Counters:
    """Totals since the scheduler was built. Tokens unless the name says otherwise.

    Prefix figures count first admissions; the `_again` ones count admissions after a preemption.
    """

    num_steps: int = 0
    num_scheduled_tokens: int = 0
    num_sampled_tokens: int = 0
    num_admissions: int = 0
    num_preemptions: int = 0
    num_displacements: int = 0
    num_lost_tokens: int = 0
    num_prefix_queried: int = 0
    num_prefix_hit: int = 0
    num_external_hit: int = 0
    num_prefix_queried_again: int = 0
    num_prefix_hit_again: int = 0
    num_drafts: int = 0
    num_drafts_accepted: int = 0
    finished: Counter[str] = field(factory=Counter)

    def count_admission(self, request: Request, hit: Hit, resumed: bool) -> None:
        """One admission and what it found."""
        self.num_admissions += 1
        if resumed:
            self.num_prefix_queried_again += request.num_tokens
            self.num_prefix_hit_again += hit.num_local_tokens
        else:
            self.num_prefix_queried += request.num_tokens
            self.num_prefix_hit += hit.num_local_tokens
            self.num_external_hit += hit.num_external_tokens


@define(eq=False)
class InFlight:
    """A plan that was handed out and whose results have not come back."""

    output: SchedulerOutput
    requests: list[Request]
    started: float
    drafts: dict[str, list[int]]
    admitted: dict[Request, Admission]
    cut: dict[Request, None]


@define(eq=False)
class Books:
    """The state of one scheduler.

    Attributes:
        requests: {id: request}, everyone unfinished.
        waiting: those without blocks, and the paused.
        running: in order of admission.
        holders: waiters whose external KV is loading or has landed; they hold blocks.
        landed: the holders that may be admitted.
        paused: displaced requests that kept their blocks; they stand in `waiting` too.
        awaiting: requests that lost their place and have output in flight.
        held: {id: finished request whose blocks a transfer still reads}.
        aborted_loads: {id: finished request whose blocks a load still writes}.
        in_flight: plans handed out, oldest first.
        partial: requests whose last step did not sample.
        finished_ids: ended since the last plan was handed out.
        refused: ended by a policy or an error, not by a result; told with the next one.
        drop_kept: the runner is still to be told that nothing it keeps is known any more.
        lost_untold: ids that lost their place in plans that were dropped.
    """

    config: SchedulerConfig
    hooks: Hooks
    clock: Clock
    kv: KvView | None = None
    requests: dict[str, Request] = field(factory=dict)
    waiting: WaitingQueue = field(init=False)
    running: list[Request] = field(factory=list)
    holders: WaitingQueue = field(init=False)
    landed: set[Request] = field(factory=set)
    paused: list[Request] = field(factory=list)
    awaiting: set[Request] = field(factory=set)
    held: dict[str, Request] = field(factory=dict)
    aborted_loads: dict[str, Request] = field(factory=dict)
    in_flight: deque[InFlight] = field(factory=deque)
    partial: list[Request] = field(factory=list)
    finished_ids: list[str] = field(factory=list)
    free_encoder_ids: list[str] = field(factory=list)
    drop_kept: bool = False
    refused: list[Request] = field(factory=list)
    lost_untold: list[str] = field(factory=list)
    num_steps: int = 0
    num_empty_steps: int = 0
    counters: Counters = field(factory=Counters)
    events: deque[Event] = field(factory=lambda: deque(maxlen=EVENT_LOG_LENGTH))

    def __attrs_post_init__(self) -> None:
        owner = self.hooks.order_waiting
        key_of = entry_order() if owner is NOTHING else owner
        who = self.hooks.blame("order_waiting")
        self.waiting = WaitingQueue(key_of, who)
        self.holders = WaitingQueue(key_of, who)

    def note(self, kind: str, request: Request, detail: Any = None) -> None:
        """Write a line into the event log."""
        self.events.append(
            Event(self.clock.now(), self.num_steps, kind, request.request_id, detail)
        )

    @property
    def loading(self) -> list[Request]:
        """Holders whose external KV is still on its way or not admitted yet, in order."""
        return self.holders.everyone()

    @property
    def num_waiting(self) -> int:
        """All waiters: queued, parked, set aside, loading."""
        return self.waiting.num_all + self.holders.num_all

    def awaits_event(self, plan: StepPlan) -> bool:
        """True if something outside the scheduler will change the situation."""
        return bool(
            any(flight.requests for flight in self.in_flight)
            or self.awaiting
            or self.held
            or self.aborted_loads
            or self.waiting.parked
            or plan.num_deferred
            or self.holders.num_all > len(self.landed)
        )


def find_in_flight(books: Books, request: Request) -> int:
    """How many plans in flight hold this request."""
    return sum(
        1
        for flight in books.in_flight
        if request.request_id in flight.output.num_scheduled_tokens
        and any(other is request for other in flight.requests)
    )
