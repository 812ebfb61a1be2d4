"""An order by cached prefix starves a cold request; waiting that counts gives it a bound."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import pytest
from attrs import define

from framework import Request, StashKey, StepView, hookimpl
from tests.support import Bench, bench, prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

SINCE: StashKey[int] = StashKey()
WARM = prompt(12)


@define(eq=False)
class LongestPrefixFirst:
    """Most cached tokens first; each step of waiting counts as `aging` cached tokens."""

    aging: float = 0.0

    @hookimpl
    def select_waiting(self, waiting: Sequence[Request], step: StepView) -> Request:
        return max(waiting, key=lambda request: self._score(request, step))

    def _score(self, request: Request, step: StepView) -> float:
        assert step.kv is not None
        since = request.stash.get(SINCE, step.number)
        request.stash[SINCE] = since
        return step.kv.peek_prefix(request) + self.aging * (step.number - since)


def stream(aging: float, steps: int) -> tuple[Bench, int | None]:
    """A cold request, and a warm one more in each step; the step that served the cold one."""
    stack = ("kv_blocks", "chunked_prefill", "fcfs", LongestPrefixFirst(aging))
    b = bench(stack, blocks=50, max_num_seqs=1)
    b.add("first", [*WARM, 999], 1)
    b.finish()
    b.add("C", 13, 1)
    for index in range(steps):
        b.add(f"warm{index}", [*WARM, 1000 + index], 1)
        if "C" in b.step():
            return b, index
    return b, None


def test_pure_prefix_order_never_serves_the_cold_one() -> None:
    """The hazard, on record: each step but the stream's end goes to a warm request."""
    b, served = stream(0.0, 200)
    assert served is None
    assert list(b.scheduler.requests) == ["C"]
    b.finish()


def test_with_a_token_a_step_it_is_served_in_the_twelfth() -> None:
    b, served = stream(1.0, 200)
    assert served is not None
    assert 12 <= served <= 13
    b.finish()


@pytest.mark.parametrize("aging", [0.25, 0.5, 1.0, 2.0, 5.0, 12.0, 20.0])
def test_the_bound_is_the_prefix_over_the_weight(aging: float) -> None:
    b, served = stream(aging, 200)
    assert served == ceil(12 / aging)
    b.finish()
