"""StepPlan: what one step hands out, while it is being made.

A plan lives for one `schedule` call. Nothing counts as computed before it is checked and closed,
so a dropped plan leaves no trace in a request's counters.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from framework.errors import HeadwayError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from framework.output import BlockIds
    from framework.protocols import Hit
    from framework.request import Request, Status
    from framework.view import StepView
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
