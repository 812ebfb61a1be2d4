"""A latency model with a measured curve: milliseconds by the number of tokens in a step.

Where the sum's straight line does not fit, tile steps for instance, the curve takes the place of
its terms for weights and arithmetic; attention and overheads stay linear.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
from attrs import field, frozen

from framework.errors import bad_field
from framework.latency.linear import LinearLatency

if TYPE_CHECKING:
    from typing import Self

    from framework.protocols import Batch

CURVE = "curve"


def _as_points(value: Any) -> Any:
    try:
        return tuple((int(count), float(milliseconds)) for count, milliseconds in value)
    except (TypeError, ValueError):
        return value


def _rises(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    allowed = "at least two pairs of tokens and milliseconds; both rise from one to the next"
    if not isinstance(value, tuple) or len(value) < 2:
        raise bad_field(attribute.name, value, allowed)
    for (count, low), (more, high) in pairwise(value):
        if not (0 < count < more and 0 <= low <= high < float("inf")):
            raise bad_field(attribute.name, [(count, low), (more, high)], allowed)


@frozen(kw_only=True)
class TableLatency(LinearLatency):
    """The sum of `LinearLatency`, and a piecewise linear curve over the tokens of the step.

    Attributes:
        curve: (tokens, milliseconds) in rising order. Below the first point the time is that of
            the point, as weights are read whatever the batch; beyond the last one it goes on as
            between the last two.
    """

    curve: tuple[tuple[int, float], ...] = field(converter=_as_points, validator=_rises)

    def predict(self, batch: Batch) -> float:
        """Seconds for one step of this batch; 0 for an empty one, monotone in every sum."""
        if not batch.num_tokens:
            return 0.0
        return super().predict(batch) + self._from_curve(batch.num_tokens) / 1000.0

    def _from_curve(self, num_tokens: int) -> float:
        curve = self.curve
        if num_tokens <= curve[0][0]:
            return curve[0][1]
        place = min(bisect_right(curve, (num_tokens, float("inf"))), len(curve) - 1)
        (count, low), (more, high) = curve[place - 1], curve[place]
        return low + (high - low) * (num_tokens - count) / (more - count)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of what costs anything; the curve is one of them."""
        return (*super().terms, CURVE)

    def scaled(self, **factors: float) -> Self:
        """The same with some terms multiplied.

        Raises:
            ConfigError: there is no such term.
        """
        factor = factors.pop(CURVE, 1.0)
        changed = super().scaled(**factors)
        curve = [(count, milliseconds * factor) for count, milliseconds in self.curve]
        return attrs.evolve(changed, curve=curve)
