"""One call of a per-request hook: written inline, resolved, and through pluggy.

`pytest benchmarks/bench_hooks.py` prints one group for each number of implementations. What is
asserted is a ratio of minima taken in turn in one process, never a time.
"""

from __future__ import annotations

from timeit import Timer
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define

from framework import hookimpl
from framework.hooks import resolve
from framework.stack import build_manager

if TYPE_CHECKING:
    from collections.abc import Callable

HOOK = "compute_num_new_tokens"
FORMS = ["inline", "resolved", "pluggy"]


@define(eq=False)
class Counts:
    """Has an answer, or none and leaves it to the next."""

    name: str
    answer: int | None

    @hookimpl
    def compute_num_new_tokens(self, request: Any, num_new_tokens: Any, hit: Any, step: Any) -> Any:
        return self.answer


def call_of(form: str, num_implementations: int) -> Callable[[], int | None]:
    """A call in one form, of which the last implementation asked has the answer."""
    plugins = [Counts(f"p{n}", None if n else 1) for n in range(num_implementations)]
    manager = build_manager(plugins)
    if form == "pluggy":
        caller = getattr(manager.hook, HOOK)
        return lambda: caller(request="r", num_new_tokens=1, hit=None, step="s")
    if form == "resolved":
        hook = resolve(manager).compute_num_new_tokens
        request: Any = "r"
        return lambda: hook(request, 1, None, request)

    def inline() -> int | None:
        for plugin in reversed(plugins):
            if plugin.answer is not None:
                return plugin.answer
        return None

    return inline


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_implementations", [1, 3])
def test_one_call(benchmark: Any, form: str, num_implementations: int) -> None:
    benchmark.group = f"{HOOK}, {num_implementations} implementations"
    assert benchmark(call_of(form, num_implementations)) == 1


@pytest.mark.parametrize("num_implementations", [1, 3])
def test_resolved_is_cheaper_than_pluggy(num_implementations: int) -> None:
    timers = {form: Timer(call_of(form, num_implementations)) for form in ("resolved", "pluggy")}
    least = dict.fromkeys(timers, float("inf"))
    for _ in range(15):
        for form, timer in timers.items():
            least[form] = min(least[form], timer.timeit(2_000))
    assert least["resolved"] / least["pluggy"] < 1, least
