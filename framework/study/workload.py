"""What arrives: requests with a time, a length that only the runner knows, and who sent them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import attrs
from attrs import field, frozen

from framework.errors import bad_field
from framework.request import Slo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIRST_TOKEN = 10
"""Tokens below it have a meaning for the simulated runner."""


def _moment(_: object, attribute: attrs.Attribute[float], value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < float("inf"):  # type: ignore[operator]
        raise bad_field(attribute.name, value, "seconds, a number of at least 0")


def _at_least(low: int) -> Any:
    def check(_: object, attribute: attrs.Attribute[int], value: object) -> None:
        if type(value) is not int or value < low:
            raise bad_field(attribute.name, value, f"an int of at least {low}")

    return check


@frozen(kw_only=True)
class Arrival:
    """One request to come.

    Attributes:
        request_id: unique in its workload.
        time: seconds from the start; of a child, seconds after its parent has ended.
        prompt_len, output_len: tokens; the output length is told to the runner alone.
        prefix: names of the prompt's leading pieces, (name, tokens) each: equal names are equal
            tokens, so the prefix cache finds them. What is left is unlike every other prompt.
        tenant: whose it is, or None.
        priority: lower is more urgent.
        slo: what was promised, or None.
        parent: id of the request whose end it waits for, or None; without pieces of its own its
            prompt then begins with what the parent's prompt and output were.
    """

    request_id: str
    time: float = field(validator=_moment)
    prompt_len: int = field(validator=_at_least(1))
    output_len: int = field(validator=_at_least(1))
    prefix: tuple[tuple[int, int], ...] = ()
    tenant: str | None = None
    priority: int = 0
    slo: Slo | None = None
    parent: str | None = None


@frozen(kw_only=True)
class Workload:
    """A sequence of arrivals, by time; children stand where their parents stand or later.

    Attributes:
        name: for tables.
        arrivals: what comes.
        source: how it was made: file and hash, or the generator's arguments; plain data.
        counts: what was clipped, dropped or skipped on the way, by reason.
        tenant_weights: {tenant: due share of service}; what is left out weighs 1.
    """

    name: str
    arrivals: Sequence[Arrival]
    source: Mapping[str, Any] = field(factory=dict)
    counts: Mapping[str, int] = field(factory=dict)
    tenant_weights: Mapping[str, float] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        ids = {arrival.request_id for arrival in self.arrivals}
        if len(ids) != len(self.arrivals):
            raise bad_field("arrivals", f"{len(self.arrivals)} with {len(ids)} ids", "unique ids")
        earlier: set[str] = set()
        for arrival in self.arrivals:
            if arrival.parent is not None and arrival.parent not in earlier:
                raise bad_field("parent", arrival.parent, "the id of an arrival before its own")
            earlier.add(arrival.request_id)

    max_output_len: int = field(init=False)
    """A limit for every request alike, which tells nothing of any: a power of two."""

    @max_output_len.default
    def _longest(self) -> int:
        longest = max((arrival.output_len for arrival in self.arrivals), default=1)
        return 1 << (longest - 1).bit_length()

    @property
    def shares_prefixes(self) -> bool:
        """Whether a prefix cache can find anything."""
        return any(arrival.prefix or arrival.parent for arrival in self.arrivals)

    @property
    def digest(self) -> str:
        """Of everything that arrives; equal digests are equal workloads."""
        found = sha256()
        for arrival in self.arrivals:
            found.update(repr(attrs.astuple(arrival)).encode())
        return found.hexdigest()[:16]

    def first(self, count: int) -> Workload:
        """The first arrivals."""
        return attrs.evolve(self, arrivals=list(self.arrivals)[:count])


def prompt_tokens(arrival: Arrival, number: int) -> list[int]:
    """The tokens of a prompt: its named pieces, then tokens of its own.

    Args:
        arrival: whose.
        number: of the arrival in its workload; makes the rest unlike all others.
    """
    tokens: list[int] = []
    for name, count in arrival.prefix:
        tokens += [FIRST_TOKEN + 2 * name] * count
    rest = arrival.prompt_len - len(tokens)
    if rest < 0:
        return tokens[: arrival.prompt_len]
    return tokens + [FIRST_TOKEN + 2 * number + 1] * rest
