"""Service of tenants, and how far apart two of them came while both had work waiting.

Service is counted as Virtual Token Counter does (Sheng et al., "Fairness in Serving Large Language
Models", OSDI 2024): 1 for a prompt token, at the first admission, and 2 for an output token, both
divided by the tenant's weight. A tenant is backlogged while a request of its waits. Everything is
worked out when somebody begins or ceases to wait or to give tokens, so that a step costs little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT_COST = 1.0
OUTPUT_COST = 2.0
PAIRS_PER_STEP = 8
"""Of more backlogged pairs, the gap is looked at in every second, third, ... step."""


@define(eq=False)
class Tenant:
    """What one tenant got.

    Attributes:
        weight: its due share.
        service: weighted, up to step `counted`; `Service.of` brings it up to date.
        num_waiting, num_giving: its requests that wait, and that give a token in each step.
        contended_service, contended_steps: what it got, and how many steps passed, while it and
            another tenant were backlogged.
    """

    weight: float
    service: float = 0.0
    counted: int = 0
    num_waiting: int = 0
    num_giving: int = 0
    contended_service: float = 0.0
    contended_steps: int = 0
    mark: tuple[float, int] = (0.0, 0)


@define(eq=False)
class Service:
    """Weighted service of every tenant.

    Args:
        weights: {tenant: share}, 1 where nothing is said.
    """

    weights: Mapping[str, float]
    tenants: dict[str, Tenant] = field(factory=dict, init=False)
    _backlogged: dict[str, Tenant] = field(factory=dict, init=False)
    _ranges: dict[tuple[str, str], tuple[float, float]] = field(factory=dict, init=False)
    """{two backlogged tenants: least and greatest difference of service since both are}."""
    _gap: float = field(default=0.0, init=False)
    _num_steps: int = field(default=0, init=False)
    _num_given: int = field(default=0, init=False)
    """Steps in which somebody gave tokens."""

    def waits(self, tenant: str | None, change: int) -> None:
        """So many more of its requests wait."""
        if tenant is None:
            return
        found = self.of(tenant)
        found.num_waiting += change
        if found.num_waiting and tenant not in self._backlogged:
            self._contended()
            self._begin(tenant)
        elif not found.num_waiting and tenant in self._backlogged:
            self._contended()
            self._cease(tenant)

    def gives(self, tenant: str | None, change: int) -> None:
        """So many more of its requests give a token each step."""
        if tenant is not None:
            self.of(tenant).num_giving += change

    def prompt(self, tenant: str | None, num_tokens: int) -> None:
        """A prompt was admitted for the first time."""
        if tenant is not None:
            found = self.of(tenant)
            found.service += PROMPT_COST * num_tokens / found.weight

    def outputs(self) -> None:
        """Everybody who gives tokens gave one."""
        self._num_given += 1

    def more_outputs(self, tenant: str | None, num_tokens: int) -> None:
        """One of them gave so many more: drafts that were accepted."""
        if tenant is not None:
            found = self.of(tenant)
            found.service += OUTPUT_COST * num_tokens / found.weight

    def advance(self) -> None:
        """A step is over."""
        self._num_steps += 1
        if self._ranges and self._num_steps % (1 + len(self._ranges) // PAIRS_PER_STEP) == 0:
            self._look()

    def of(self, name: str) -> Tenant:
        """A tenant, its service up to date."""
        found = self.tenants.get(name)
        if found is None:
            found = self.tenants[name] = Tenant(
                self.weights.get(name, 1.0), counted=self._num_given
            )
        elif found.counted != self._num_given:
            num_tokens = found.num_giving * (self._num_given - found.counted)
            found.service += OUTPUT_COST * num_tokens / found.weight
            found.counted = self._num_given
        return found

    @property
    def gap(self) -> float:
        """Largest difference of service of two tenants over a time in which both were backlogged.

        To the service of a few steps: with many tenants not every step is looked at.
        """
        self._look()
        return self._gap

    @property
    def totals(self) -> dict[str, float]:
        """{tenant: weighted service}, by name."""
        return {name: self.of(name).service for name in sorted(self.tenants)}

    @property
    def jain(self) -> float | None:
        """Jain's index of the service a step that tenants got while they competed; 1 = equal.

        A tenant competes while it and another are backlogged, and counts by the steps in which it
        did: who asks for less than its share is no sign of unfairness. None if nobody competed.
        """
        self._contended()
        rates = [
            (tenant.contended_service / tenant.contended_steps, tenant.contended_steps)
            for tenant in self.tenants.values()
            if tenant.contended_steps
        ]
        squares = sum(steps * rate**2 for rate, steps in rates)
        if not squares:
            return None
        total = sum(steps for _, steps in rates)
        return float(sum(steps * rate for rate, steps in rates) ** 2 / (total * squares))

    def _begin(self, tenant: str) -> None:
        """It is backlogged from now on, beside all who are."""
        own = self.of(tenant)
        for name in self._backlogged:
            difference = self.of(name).service - own.service
            self._ranges[name, tenant] = difference, difference
        self._backlogged[tenant] = own
        own.mark = own.service, self._num_steps

    def _cease(self, tenant: str) -> None:
        """It is not backlogged any more; its last differences still count."""
        del self._backlogged[tenant]
        for name in self._backlogged:
            pair = (name, tenant) if (name, tenant) in self._ranges else (tenant, name)
            self._widen(pair, self.of(pair[0]).service - self.of(pair[1]).service)
            del self._ranges[pair]

    def _look(self) -> None:
        """How far apart are those who are backlogged."""
        services = {name: self.of(name).service for name in self._backlogged}
        for pair, (low, high) in self._ranges.items():
            difference = services[pair[0]] - services[pair[1]]
            if not low <= difference <= high:
                self._widen(pair, difference)

    def _widen(self, pair: tuple[str, str], difference: float) -> None:
        low, high = self._ranges[pair]
        low, high = min(low, difference), max(high, difference)
        self._ranges[pair] = low, high
        self._gap = max(self._gap, high - low)

    def _contended(self) -> None:
        """Count what the backlogged got since the last time, if there are several."""
        for name in self._backlogged:
            tenant = self.of(name)
            service, step = tenant.mark
            if len(self._backlogged) > 1:
                tenant.contended_service += tenant.service - service
                tenant.contended_steps += self._num_steps - step
            tenant.mark = tenant.service, self._num_steps
