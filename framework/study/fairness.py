"""Service of tenants, and how far apart two of them came while both had work waiting.

Service is counted as Virtual Token Counter does (Sheng et al., "Fairness in Serving Large Language
Models", OSDI 2024): 1 for a prompt token, at the first admission, and 2 for an output token, both
divided by the tenant's weight.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT_COST = 1.0
OUTPUT_COST = 2.0


@define(eq=False)
class _Tenant:
    weight: float
    service: float = 0.0
    num_waiting: int = 0
    num_giving: int = 0


@define(eq=False)
class Service:
    """Weighted service of every tenant.

    Args:
        weights: {tenant: share}, 1 where nothing is said.
    """

    weights: Mapping[str, float]
    tenants: dict[str, _Tenant] = field(factory=dict, init=False)
    gap: float = field(default=0.0, init=False)
    """Largest difference of service of two tenants over a time in which both had work waiting."""
    _ranges: dict[tuple[str, str], tuple[float, float]] = field(factory=dict, init=False)

    def waits(self, tenant: str | None, change: int) -> None:
        """So many more of its requests wait."""
        if tenant is not None:
            self._of(tenant).num_waiting += change

    def gives(self, tenant: str | None, change: int) -> None:
        """So many more of its requests give a token each step."""
        if tenant is not None:
            self._of(tenant).num_giving += change

    def prompt(self, tenant: str | None, num_tokens: int) -> None:
        """A prompt was admitted for the first time."""
        if tenant is not None:
            found = self._of(tenant)
            found.service += PROMPT_COST * num_tokens / found.weight

    def outputs(self) -> None:
        """Everybody who gives tokens gave one."""
        for tenant in self.tenants.values():
            if tenant.num_giving:
                tenant.service += OUTPUT_COST * tenant.num_giving / tenant.weight

    def advance(self) -> None:
        """A step is over: who is backlogged, and how far apart are they."""
        if len(self.tenants) < 2:
            return
        for pair in combinations(self.tenants, 2):
            one, other = self.tenants[pair[0]], self.tenants[pair[1]]
            if not (one.num_waiting and other.num_waiting):
                self._ranges.pop(pair, None)
                continue
            difference = one.service - other.service
            low, high = self._ranges.get(pair, (difference, difference))
            low, high = min(low, difference), max(high, difference)
            self._ranges[pair] = low, high
            self.gap = max(self.gap, high - low)

    def _of(self, tenant: str) -> _Tenant:
        found = self.tenants.get(tenant)
        if found is None:
            found = self.tenants[tenant] = _Tenant(self.weights.get(tenant, 1.0))
        return found

    @property
    def jain(self) -> float | None:
        """Jain's index of the tenants' service (1 = equal); None below two tenants."""
        services = [tenant.service for tenant in self.tenants.values()]
        squares = sum(service**2 for service in services)
        if len(services) < 2 or not squares:
            return None
        return sum(services) ** 2 / (len(services) * squares)
