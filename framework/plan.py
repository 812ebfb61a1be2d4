"""StepPlan: what one step hands out, while it is being made. StepView: its read-only face.

A plan lives for one `schedule` call. Nothing counts as computed before it is checked and closed,
so a dropped plan leaves no trace in a request's counters.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from framework.errors import HeadwayError
from framework.protocols import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from framework.config import SchedulerConfig
    from framework.output import BlockIds
    from framework.protocols import Hit, KvView, LatencyModel
    from framework.request import Request, Status
    from framework.waiting import Rank


class Refusal(Enum):
    """Why a waiting request was not admitted in this step."""

    SLOT = "no free slot (max_num_seqs)"
    BUDGET = "token budget used up"
    BLOCKS = "not enough free KV blocks"
    GATE = "vetoed by may_admit"


@frozen
class Admission:
    """What an admission changed, so that it can be undone."""

    hit: Hit
    resumed: bool
    rank: Rank
    status: Status
    num_computed_tokens: int
    held_blocks: bool


@define(eq=False)
class StepPlan:
    """Choices and what is left.

    Attributes:
        step: number of the step.
        now: scheduler's clock at its beginning, in seconds.
        budget, budget_left: tokens.
        num_slots: running requests beyond which nobody is admitted.
        requests: planned ones: running ones in order, then the admitted.
        num_scheduled_tokens: {id: tokens}, in the same order.
        num_running_planned: how many of `requests` were running before.
        new_blocks: {request: ids}, for each request that `allocate` was asked for.
        drafts: {id: drafts to verify}.
        encoder_inputs: {id: indices to run}.
        admitted: {request: how to undo it}.
        refused: {request: why}.
        lost: who lost its place in this step.
        preempted: ids of those, in order.
        cut: planned requests that this step does not bring to their last known token.
        memory_refused: `allocate` said no in the running half.
        view: the read-only face of this plan.
    """

    step: int
    now: float
    budget: int
    budget_left: int
    num_slots: int
    num_running_at_start: int
    num_waiting_at_start: int
    requests: list[Request] = field(factory=list)
    num_scheduled_tokens: dict[str, int] = field(factory=dict)
    num_running_planned: int = 0
    new_blocks: dict[Request, BlockIds] = field(factory=dict)
    drafts: dict[str, list[int]] = field(factory=dict)
    encoder_inputs: dict[str, Sequence[int]] = field(factory=dict)
    admitted: dict[Request, Admission] = field(factory=dict)
    refused: dict[Request, Refusal] = field(factory=dict)
    cut: dict[Request, None] = field(factory=dict)
    lost: set[Request] = field(factory=set)
    preempted: list[str] = field(factory=list)
    num_rejected: int = 0
    num_loads_begun: int = 0
    num_deferred: int = 0
    memory_refused: bool = False
    view: StepView = field(init=False)

    def add(self, request: Request, num_tokens: int) -> None:
        """Hand the request so many tokens; which are drafts, and whether they reach its last."""
        self.requests.append(request)
        self.num_scheduled_tokens[request.request_id] = num_tokens
        self.budget_left -= num_tokens
        num_sure = request.num_known_tokens - len(request.spec_token_ids)
        num_drafts = request.num_computed_tokens + num_tokens - num_sure
        if num_drafts > 0:
            drafts = request.spec_token_ids[:num_drafts] or [-1] * num_drafts
            self.drafts[request.request_id] = drafts
        elif num_drafts < 0:
            self.cut[request] = None

    def add_plain(self, order: Iterator[Request]) -> Request | None:
        """Hand one token to each request that wants just that and has room for it.

        Stops at the first request that needs a decision and returns it; None at the end of the
        order or of the budget. Most requests of most steps are decided here, so it is kept tight.
        """
        add, tokens, budget = self.requests.append, self.num_scheduled_tokens, self.budget_left
        undecided = None
        for request in order:
            num_computed = request.num_computed_tokens
            if request.num_known_tokens - num_computed != 1 or num_computed >= request.num_slots:
                undecided = request
                break
            if not budget:
                break
            add(request)
            tokens[request.request_id] = 1
            budget -= 1
        self.budget_left = budget
        return undecided

    def withdraw(self, request: Request) -> BlockIds | None:
        """Take a request out again; returns the blocks to give back, if `allocate` was asked."""
        index = self.requests.index(request)
        del self.requests[index]
        if index < self.num_running_planned:
            self.num_running_planned -= 1
        self.budget_left += self.num_scheduled_tokens.pop(request.request_id)
        self.drafts.pop(request.request_id, None)
        self.encoder_inputs.pop(request.request_id, None)
        self.admitted.pop(request, None)
        self.cut.pop(request, None)
        return self.new_blocks.pop(request, None)

    def check(self, max_num_seqs: int, num_running: int) -> None:
        """Raise if the books of the plan do not add up (a fault of the core, not of a policy)."""
        counts = self.num_scheduled_tokens.values()
        total = self.budget - self.budget_left
        if (
            self.budget_left < 0
            or num_running > max_num_seqs
            or len(counts) != len(self.requests)
            or sum(counts) != total
            or (counts and min(counts) < 1)
        ):
            raise HeadwayError(
                f"step {self.step}: the plan does not add up: {len(self.requests)} requests, "
                f"{sum(counts)} tokens, budget {self.budget}, left {self.budget_left}, "
                f"{num_running} running of at most {max_num_seqs}"
            )


@frozen
class Surroundings:
    """What a StepView shows besides the plan; one for the life of a scheduler."""

    config: SchedulerConfig
    kv: KvView | None
    latency: LatencyModel | None
    running: Callable[[], Sequence[Request]]
    loading: Callable[[], Sequence[Request]]
    predict: Callable[[Request], float | None]


class StepView:
    """The step as policies see it: read-only and live while the plan grows."""

    __slots__ = ("_around", "_batch", "_plan", "_prefills")

    def __init__(self, plan: StepPlan, around: Surroundings) -> None:
        self._plan = plan
        self._around = around
        self._batch: tuple[int, int, Batch] | None = None
        self._prefills: list[Request] | None = None

    @property
    def number(self) -> int:
        """Number of the step, from 0."""
        return self._plan.step

    @property
    def now(self) -> float:
        """Seconds on the scheduler's clock at the beginning of the step."""
        return self._plan.now

    @property
    def config(self) -> SchedulerConfig:
        """The limits."""
        return self._around.config

    @property
    def budget_left(self) -> int:
        """Tokens that may still be handed out."""
        return self._plan.budget_left

    @property
    def slots_left(self) -> int:
        """Requests that may still be admitted."""
        return max(0, self._plan.num_slots - len(self._around.running()))

    @property
    def planned(self) -> Mapping[str, int]:
        """{request id: tokens} so far, in order."""
        return MappingProxyType(self._plan.num_scheduled_tokens)

    @property
    def planned_requests(self) -> Sequence[Request]:
        """The requests of `planned`, in the same order (a copy)."""
        return tuple(self._plan.requests)

    @property
    def admitted(self) -> Sequence[Request]:
        """Requests admitted in this step so far, in order."""
        return tuple(self._plan.admitted)

    @property
    def refused(self) -> Mapping[Request, Refusal]:
        """{request: why it was not admitted in this step}."""
        return MappingProxyType(self._plan.refused)

    @property
    def num_running_at_start(self) -> int:
        """Running requests at the beginning of the step."""
        return self._plan.num_running_at_start

    @property
    def num_waiting_at_start(self) -> int:
        """All waiters at the beginning of the step, loading and parked ones included."""
        return self._plan.num_waiting_at_start

    @property
    def num_running(self) -> int:
        """Running requests now, those admitted in this step included."""
        return len(self._around.running())

    @property
    def num_running_planned(self) -> int:
        """Requests with tokens in this step that were running before it."""
        return len(self._plan.requests) - len(self._plan.admitted)

    @property
    def loading(self) -> Sequence[Request]:
        """Waiters whose external KV is on its way."""
        return self._around.loading()

    @property
    def kv(self) -> KvView | None:
        """Face of the owner of blocks, or None if nobody owns any."""
        return self._around.kv

    @property
    def latency(self) -> LatencyModel | None:
        """The injected latency model, or None."""
        return self._around.latency

    @property
    def batch(self) -> Batch:
        """Sums over the plan so far, for `latency.predict`."""
        key = (len(self._plan.requests), self._plan.budget_left)
        if self._batch is None or self._batch[:2] != key:
            self._batch = (*key, _sums(self._plan))
        return self._batch[2]

    def running_prefills(self) -> Sequence[Request]:
        """Running requests whose last step did not sample, those admitted now left out."""
        if self._prefills is None:
            self._prefills = [
                request for request in self._around.running() if request.is_prefill_chunk
            ]
        return self._prefills

    def partly_admitted(self) -> Sequence[Request]:
        """Requests admitted in this step that are not through with their known tokens."""
        return [request for request in self._plan.admitted if request in self._plan.cut]

    def landed(self) -> Sequence[Request]:
        """Requests admitted in this step whose external KV had been loaded before."""
        admitted = self._plan.admitted.items()
        return [request for request, admission in admitted if admission.held_blocks]

    def has_running_prefill(self) -> bool:
        """True if one of `running_prefills` has tokens in this step, its last chunk included."""
        planned = self._plan.num_scheduled_tokens
        return any(request.request_id in planned for request in self.running_prefills())

    def predict(self, request: Request) -> float | None:
        """Predicted total output length in tokens, or None if no plugin predicts."""
        return self._around.predict(request)

    def fits(self, request: Request) -> bool:
        """Whether an admission would find slot, budget and blocks now (a dry run)."""
        if self.slots_left <= 0 or self.budget_left <= 0:
            return False
        kv = self._around.kv
        return kv is None or kv.fits(request, self)


def _sums(plan: StepPlan) -> Batch:
    prefill = decodes = context = 0
    query_context = 0.0
    for request, tokens in zip(plan.requests, plan.num_scheduled_tokens.values(), strict=True):
        if tokens > 1:
            prefill += tokens
            query_context += tokens * (request.num_computed_tokens + tokens / 2)
        else:
            decodes += 1
            context += request.num_computed_tokens + 1
    return Batch(
        num_tokens=prefill + decodes,
        num_prefill_tokens=prefill,
        prefill_query_context=query_context,
        decode_context=context,
        num_decodes=decodes,
        num_requests=len(plan.requests),
    )
