"""Who sends a request and what was promised: tenants, priorities and SLOs by share.

The same for made and for recorded workloads. Each of the three is drawn once for a chat (a request
and those that follow it), from a random stream of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

import attrs
from attrs import field, frozen

from framework.errors import bad_field
from framework.request import Slo
from framework.study.draws import weighted
from framework.study.workload import Arrival

Shares: TypeAlias = "Sequence[tuple[Any, float]]"
"""Values with their shares, which need not sum to 1."""


def _tenants(given: Any) -> Shares:
    if type(given) is int or (isinstance(given, str) and given.isdecimal()):
        if int(given) < 1:
            raise bad_field("tenants", given, "a number of at least 1, or shares such as a*3|b")
        given = {f"t{number}": 1.0 for number in range(int(given))}
    if isinstance(given, Mapping):
        return [(str(name), float(share)) for name, share in given.items()]
    return weighted("tenants", given) if isinstance(given, str) else list(given)


def _priorities(given: Any) -> Shares:
    if type(given) is int:
        return [(given, 1.0)]
    if isinstance(given, Mapping):
        return list(given.items())
    if not isinstance(given, str):
        return list(given)
    try:
        return [(int(text), share) for text, share in weighted("priority", given)]
    except ValueError:
        raise bad_field("priority", given, "whole numbers, such as 0*3|5") from None


def _slos(given: Any) -> Shares:
    if given is None or isinstance(given, Slo):
        return [(given, 1.0)]
    if not isinstance(given, str):
        return list(given)
    return [(_slo(given, text), share) for text, share in weighted("slo", given)]


def _slo(given: str, text: str) -> Slo | None:
    parts = text.split("/")
    try:
        seconds = [None if part.strip() == "-" else float(part) for part in parts]
    except ValueError:
        seconds = []
    if len(seconds) != 2 or any(each is not None and not each > 0 for each in seconds):
        raise bad_field("slo", given, "seconds TTFT/TPOT, '-' for none, such as 1/0.05*2|20/-")
    return None if seconds == [None, None] else Slo(ttft_s=seconds[0], tpot_s=seconds[1])


@frozen(kw_only=True)
class Classes:
    """Shares of tenants, priorities and SLOs.

    Attributes:
        tenants: a number of them (t0, t1, ...), {name: share}, or text such as 'a*3|b'; empty =
            as they are.
        weights: each tenant's due share of service: {name: weight}, or text or numbers in the
            tenants' order, such as '1|2'; what is left out weighs 1.
        priority: an int, {priority: share}, or text such as '0*3|5'; empty = as they are.
        slo: an Slo, [(Slo or None, share)], or text such as '1/0.05*2|20/-' (seconds to the first
            token / for each further one); empty = as they are.
    """

    tenants: Shares = field(default=(), converter=_tenants)
    priority: Shares = field(default=(), converter=_priorities)
    slo: Shares = field(default=(), converter=_slos)
    weights: Any = field(default=None)

    def __attrs_post_init__(self) -> None:
        for name in ("tenants", "priority", "slo"):
            shares = getattr(self, name)
            if any(not 0 < share < float("inf") for _, share in shares):
                raise bad_field(name, shares, "shares above 0")
        names = [name for name, _ in self.tenants]
        if len(set(names)) != len(names):
            raise bad_field("tenants", names, "names that differ")
        self.tenant_weights  # noqa: B018  (a wrong one is told now)

    @property
    def tenant_weights(self) -> dict[str, float]:
        """{tenant: weight} of those that were given one."""
        given = self.weights
        if given is None:
            return {}
        if isinstance(given, str):
            given = given.split("|")
        names = [name for name, _ in self.tenants]
        if not isinstance(given, Mapping):
            if len(given) != len(names):
                raise bad_field("weights", self.weights, f"one for each of {len(names)} tenants")
            given = dict(zip(names, given, strict=True))
        try:
            weights = {str(name): float(weight) for name, weight in given.items()}
        except (TypeError, ValueError):
            weights = {"": -1.0}
        if any(not 0 < weight < float("inf") for weight in weights.values()):
            raise bad_field("weights", self.weights, "numbers above 0")
        return weights

    def lay_over(self, arrivals: Sequence[Arrival], seed: int | str) -> list[Arrival]:
        """The arrivals with their classes; where a share is empty, they keep what they have."""
        streams = {name: Random(f"{seed}/{name}") for name in ("tenants", "priority", "slo")}
        attributes = {"tenants": "tenant", "priority": "priority", "slo": "slo"}
        drawn: dict[str, dict[str, Any]] = {}
        found = []
        for arrival in arrivals:
            kept = drawn.get(arrival.parent) if arrival.parent is not None else None
            if kept is None:
                kept = {
                    attributes[name]: _choose(random, getattr(self, name))
                    for name, random in streams.items()
                    if getattr(self, name)
                }
            drawn[arrival.request_id] = kept
            found.append(attrs.evolve(arrival, **kept) if kept else arrival)
        return found


def _choose(random: Random, shares: Shares) -> Any:
    values, weights = zip(*shares, strict=True)
    return random.choices(values, weights)[0]
