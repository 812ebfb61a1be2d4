"""Deficit longest prefix match: cache-friendly order within bounds of fairness.

Each tenant has a deficit, which starts at `quantum` (times its weight). Waiting requests are walked
with the longest cached prefix first, but only those of tenants with a positive deficit are
admitted. An admission costs the tenant the prompt tokens that are not cached, an output token costs
`output_cost` as it is made; what a preempted request computes again costs nothing. When nobody who
waits has a deficit left, everybody who has none gets a quantum, until somebody has one. A larger
quantum leaves more to the order and allows a larger gap between tenants' service.
Source: Cao et al., "Locality-aware Fair Scheduling in LLM Serving" (arXiv 2501.14312).
Hooks: request_arrived, select_waiting, request_admitted, request_preempted, request_finished,
step_planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field
from attrs.validators import deep_mapping, ge, gt, instance_of

from framework import (
    HOLD,
    Answer,
    Hit,
    Refusal,
    Request,
    StashKey,
    Status,
    StepView,
    WaitingView,
    hookimpl,
)
from framework.prefixes import longest_prefix_first

_NUMBER = instance_of((int, float))
_WHOLE = [instance_of(int), ge(0)]
_PAID: StashKey[int] = StashKey()
"""Output tokens charged when it last lost its place; there once its prompt is charged."""


@define(eq=False)
class Dlpm:
    """Longest prefix first among tenants that have a deficit.

    Args:
        quantum: service that a tenant may get ahead, in tokens.
        weights: {tenant: its share of service}, 1 where nothing is said.
        output_cost: service of an output token; one of the prompt is 1.
        longest_queue: waiting requests beyond which the queue's own order holds.
        shared_tokens: uncached tokens that make two beginnings count as one; 0 = never.
    """

    may_starve = True  # of one tenant's requests, those with rare prefixes

    quantum: float = field(default=4000.0, validator=[_NUMBER, gt(0)])
    weights: Mapping[str, float] = field(
        factory=dict, validator=deep_mapping(instance_of(str), gt(0.0))
    )
    output_cost: float = field(default=2.0, validator=[_NUMBER, ge(0)])
    longest_queue: int = field(default=128, validator=_WHOLE)
    shared_tokens: int = field(default=32, validator=_WHOLE)
    deficits: dict[str | None, float] = field(factory=dict, init=False)
    """{tenant: weighted tokens it may still get before its turn ends}."""
    _charged: dict[Request, int] = field(factory=dict, init=False)
    """{running request: output tokens that its tenant has paid for}."""
    _seen: StepView | None = field(default=None, init=False)
    _order: Sequence[Request] = field(default=(), init=False)

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        """A new tenant begins with a quantum."""
        self.deficits.setdefault(request.tenant, self.quantum)

    @hookimpl
    def select_waiting(self, waiting: WaitingView, step: StepView) -> Request | Answer | None:
        """The first whose tenant has a deficit; who was vetoed by another plugin is passed over."""
        if not step.slots_left or not step.budget_left:
            return None  # nobody can come in, so nobody is looked up
        if step is not self._seen:
            self._seen = step
            self._charge_outputs()
            self._order = longest_prefix_first(
                waiting,
                step.kv,
                longest_queue=self.longest_queue,
                shared_tokens=self.shared_tokens,
            )
        refused = step.refused
        self._order = [
            request
            for request in self._order
            if request in waiting and refused.get(request) is not Refusal.GATE
        ]
        if not self._order:
            return HOLD
        chosen = self._first_in_turn()
        if chosen is None:
            self._replenish()
            chosen = self._first_in_turn()
        return chosen or HOLD

    @hookimpl
    def request_admitted(self, request: Request, hit: Hit) -> None:
        """Charge what is to be computed, once."""
        if _PAID not in request.stash:
            request.stash[_PAID] = 0
            self._charge(request, max(0, request.num_prompt_tokens - hit.num_tokens))
        self._charged.setdefault(request, request.stash[_PAID])

    @hookimpl
    def request_preempted(self) -> None:
        """What it gave so far is paid for."""
        self._charge_outputs()

    @hookimpl
    def request_finished(self) -> None:
        """Its last tokens are paid for."""
        self._charge_outputs()

    @hookimpl
    def step_planned(self) -> None:
        """The order was that of this step."""
        self._seen, self._order = None, ()

    def _first_in_turn(self) -> Request | None:
        deficits = self.deficits
        return next((request for request in self._order if deficits[request.tenant] > 0), None)

    def _replenish(self) -> None:
        """As many rounds of quanta as give one of those who wait a deficit."""
        waiting = dict.fromkeys(request.tenant for request in self._order)
        rounds = min(map(self._rounds_needed, waiting))
        for tenant, deficit in self.deficits.items():
            if deficit <= 0:
                given = min(rounds, self._rounds_needed(tenant))
                self.deficits[tenant] = deficit + given * self.quantum

    def _rounds_needed(self, tenant: str | None) -> int:
        return int(-self.deficits[tenant] // self.quantum) + 1

    def _charge_outputs(self) -> None:
        """Deficits are brought up to date when they are read, which costs less than each step."""
        gone = []
        for request, num_paid in self._charged.items():
            num_given = request.num_output_tokens
            if num_given != num_paid:
                self._charge(request, self.output_cost * (num_given - num_paid))
                self._charged[request] = num_given
            if request.status is not Status.RUNNING:
                gone.append(request)
        for request in gone:
            request.stash[_PAID] = self._charged.pop(request)

    def _charge(self, request: Request, service: float) -> None:
        tenant = request.tenant
        weight = 1.0 if tenant is None else self.weights.get(tenant, 1.0)
        self.deficits[tenant] -= service / weight
