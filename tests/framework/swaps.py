"""A Bench of which the stack is swapped, with steps in flight or not."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from attrs import define, field

from tests.support import Bench, bench

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from framework import RunnerOutput, SchedulerOutput

BASE = ("kv_blocks", "chunked_prefill")


def stack(*policy: object) -> list[object]:
    """A policy on top of blocks and chunks."""
    return [*BASE, *policy]


@define(eq=False)
class Swapped:
    """Plans up to two steps ahead in async mode; a swap applies them first, as an engine does."""

    bench: Bench
    flights: deque[tuple[SchedulerOutput, RunnerOutput]] = field(factory=deque)

    def advance(self) -> None:
        """Plan a step if one may be planned, and apply the oldest one if no more may."""
        b = self.bench
        depth = 1 + b.scheduler.config.async_scheduling
        if b.scheduler.has_requests() and len(self.flights) < depth:
            output = b.schedule()
            self.flights.append((output, b.runner.execute(output)))
        if len(self.flights) == depth or not b.scheduler.has_requests():
            self.settle(1)

    def settle(self, count: int = 2) -> None:
        """Apply the oldest steps in flight."""
        b = self.bench
        for output, found in [self.flights.popleft() for _ in range(min(count, len(self.flights)))]:
            result = b.scheduler.update_from_output(output, found)
            b.invariants.after_update(result)
            b.results.append(result)
            b.ends += result.finish_reasons.items()

    def swap(self, plugins: Sequence[object]) -> None:
        """Put another stack in place."""
        self.settle()
        self.bench.scheduler.swap(plugins)
        self.bench.runner.paged = self.bench.scheduler.kv is not None
        self.bench.invariants.after_swap()

    def finish(self) -> None:
        """Run until nothing is left; every output is that of the request alone."""
        for _ in range(1000):
            if not (self.flights or self.bench.scheduler.has_requests()):
                break
            self.advance()
        self.bench.finish()
        ends = [name for name, _ in self.bench.ends]
        assert sorted(ends) == sorted(request.request_id for request in self.bench.requests)


def swapped(plugins: Sequence[object], **limits: Any) -> Swapped:
    """A bench with a stack to begin with."""
    return Swapped(bench(plugins, **limits))
