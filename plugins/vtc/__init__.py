"""Virtual Token Counter: tenants with work waiting get equal (or weighted) service.

Each tenant has a counter of the service it got: `prompt_cost` for a prompt token, charged at once
when the request is admitted, and `output_cost` for an output token, both over its weight. The next
to be tried is the first waiting request of the tenant with the least counter; if it does not fit,
nobody is admitted past it. A tenant that comes back with nobody waiting is lifted to the least
counter among those who wait (to that of the last who left, if none does), so being idle earns no
credit. What a preempted request computes again is not charged. Within a tenant the order is that
of the queue, so any plugin that owns it goes with this one.
Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024 (arXiv 2401.00588).
Hooks: request_arrived, select_waiting, request_admitted, request_preempted, request_finished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from attrs import define, field
from attrs.validators import deep_mapping, ge, gt, instance_of

from framework import Request, StashKey, Status, StepView, WaitingView, hookimpl

_NUMBER = instance_of((int, float))
_PAID: StashKey[int] = StashKey()
"""Output tokens charged when it last lost its place; there once its prompt is charged."""


@define(eq=False)
class Vtc:
    """Fair shares by counters.

    Args:
        weights: {tenant: its share of service}, 1 where nothing is said.
        prompt_cost: service of a prompt token.
        output_cost: service of an output token.
    """

    weights: Mapping[str, float] = field(
        factory=dict, validator=deep_mapping(instance_of(str), gt(0.0))
    )
    prompt_cost: float = field(default=1.0, validator=[_NUMBER, ge(0)])
    output_cost: float = field(default=2.0, validator=[_NUMBER, ge(0)])
    counters: dict[str | None, float] = field(factory=dict, init=False)
    """{tenant: weighted service so far, lifts included}, as of the last decision."""
    _num_waiting: Counter[str | None] = field(factory=Counter, init=False)
    _last_to_leave: str | None = field(default=None, init=False)
    _charged: dict[Request, int] = field(factory=dict, init=False)
    """{running request: output tokens that its tenant has paid for}."""
    _step: int = field(default=-1, init=False)

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        """Lift the counter of a tenant that had nobody waiting."""
        self._charge_outputs()
        tenant = request.tenant
        own = self.counters.setdefault(tenant, 0.0)
        if not self._num_waiting[tenant]:
            others = [self.counters[other] for other in self._waiting_tenants()]
            floor = min(others) if others else self.counters.get(self._last_to_leave, 0.0)
            self.counters[tenant] = max(own, floor)
        self._num_waiting[tenant] += 1

    @hookimpl
    def select_waiting(self, waiting: WaitingView, step: StepView) -> Request | None:
        """The first of the tenant with the least counter; ties go to who came first of all."""
        if not step.slots_left or not step.budget_left:
            return None  # nobody can come in, so nobody is compared
        if step.number != self._step:
            self._step = step.number
            self._charge_outputs()
        for tenant in sorted(self._waiting_tenants(), key=self.counters.__getitem__):
            for request in waiting:
                if request.tenant == tenant:
                    return request
        return None

    @hookimpl
    def request_admitted(self, request: Request) -> None:
        """Charge the prompt at once, so that the next choice sees it."""
        if _PAID not in request.stash:
            request.stash[_PAID] = 0
            self._charge(request, self.prompt_cost * request.num_prompt_tokens)
        if request not in self._charged:
            self._leave(request)
        self._charged.setdefault(request, request.stash[_PAID])

    @hookimpl
    def request_preempted(self) -> None:
        """It waits again."""
        self._charge_outputs()

    @hookimpl
    def request_finished(self, request: Request) -> None:
        """Charge its last tokens; or it ended while it waited."""
        has_run = request in self._charged
        self._charge_outputs()
        if not has_run:
            self._leave(request)

    def _waiting_tenants(self) -> list[str | None]:
        return [tenant for tenant in self.counters if self._num_waiting[tenant]]

    def _leave(self, request: Request) -> None:
        self._num_waiting[request.tenant] -= 1
        self._last_to_leave = request.tenant

    def _charge_outputs(self) -> None:
        """Counters are brought up to date when they are read, which costs less than each step."""
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
            self._num_waiting[request.tenant] += not request.is_finished

    def _charge(self, request: Request, service: float) -> None:
        tenant = request.tenant
        weight = 1.0 if tenant is None else self.weights.get(tenant, 1.0)
        self.counters[tenant] += service / weight
