"""StepView: the step as policies see it, read-only and live while the plan grows."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import frozen

from framework.protocols import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from framework.config import SchedulerConfig
    from framework.plan import Refusal, StepPlan
    from framework.protocols import KvView, LatencyModel
    from framework.request import Request


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

    def would_fit(self, request: Request, without: Sequence[Request]) -> bool:
        """Whether there would be blocks for all it knows if these gave theirs back."""
        kv = self._around.kv
        if kv is None:
            return True
        needed = kv.num_blocks_needed(request.num_tokens)
        needed -= kv.peek_prefix(request) // self.config.block_size
        return kv.num_free_blocks + sum(map(kv.num_freeable_blocks, without)) >= needed


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
