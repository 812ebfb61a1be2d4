"""What is kept of a whole run in bounded room: a histogram of gaps, and curves over time."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from framework.output import SchedulerOutput
    from framework.scheduler import Scheduler
    from framework.view import StepView

SMALLEST = 1e-5
RATIO = math.log(1.01)
MOST_POINTS = 2000


@define(eq=False)
class Gaps:
    """A histogram of seconds in bins of 1 %; percentiles are right to half a per cent.

    Attributes:
        bins: {bin: gaps in it}.
        count, total: of all gaps.
        longest: the largest gap.
    """

    bins: Counter[int] = field(factory=Counter)
    count: int = 0
    total: float = 0.0
    longest: float = 0.0

    def add(self, gap: float, count: int = 1) -> None:
        """Count a gap that so many requests saw."""
        self.bins[_bin(gap)] += count
        self.count += count
        self.total += gap * count
        self.longest = max(self.longest, gap)

    def percentile(self, share: float) -> float | None:
        """The gap below which this share lies, between two by interpolation; None without gaps."""
        if not self.count:
            return None
        place = share * (self.count - 1)
        low = int(place)
        below = self._at(low)
        return below + (self._at(min(low + 1, self.count - 1)) - below) * (place - low)

    def _at(self, rank: int) -> float:
        """The middle of the bin of the gap that so many are before, in order."""
        if rank == self.count - 1:
            return self.longest
        seen = 0
        for number in sorted(self.bins):
            seen += self.bins[number]
            if seen > rank:
                return min(SMALLEST * math.exp((number + 0.5) * RATIO), self.longest)
        return self.longest

    @property
    def mean(self) -> float | None:
        """Seconds; None if there are none."""
        return self.total / self.count if self.count else None


def _bin(gap: float) -> int:
    return int(math.log(gap / SMALLEST) / RATIO) if gap > SMALLEST else 0


@define(eq=False)
class Series:
    """Curves over time: every step at first, then every second, fourth, ... one.

    Attributes:
        points: (time, KV blocks in use, running, waiting, tokens of the step).
        num_blocks: of the pool, or 0 if nobody owns blocks.
    """

    points: list[tuple[float, int, int, int, int]] = field(factory=list)
    num_blocks: int = 0
    used_time: float = field(default=0.0, init=False)
    running_time: float = field(default=0.0, init=False)
    num_steps: int = field(default=0, init=False)
    num_tokens: int = field(default=0, init=False)
    _every: int = field(default=1, init=False)
    _last: float = field(default=0.0, init=False)
    _began: float = field(default=0.0, init=False)
    _used: int = field(default=0, init=False)
    _running: int = field(default=0, init=False)

    def begin(self, step: StepView) -> None:
        """A step is planned: what holds until it has ended; between steps nobody runs."""
        self._began, self._running = step.now, step.num_running
        self._used = 0 if step.kv is None else step.kv.num_total_blocks - step.kv.num_free_blocks

    def note(self, scheduler: Scheduler, output: SchedulerOutput, now: float) -> None:
        """A step has ended."""
        kv = scheduler.kv
        used = 0
        if kv is not None:
            self.num_blocks = kv.num_total_blocks
            used = self.num_blocks - kv.num_free_blocks
        running = len(scheduler.running)
        self.used_time += self._used * (now - self._began)
        self.running_time += self._running * (now - self._began)
        self._last = now
        self.num_tokens += output.total_num_scheduled_tokens
        if self.num_steps % self._every == 0:
            tokens = output.total_num_scheduled_tokens
            self.points.append((now, used, running, len(scheduler.waiting), tokens))
            if len(self.points) > 2 * MOST_POINTS:
                del self.points[1::2]
                self._every *= 2
        self.num_steps += 1

    @property
    def mean_kv_use(self) -> float | None:
        """Share of the blocks in use, over time."""
        if not self.num_blocks or not self._last:
            return None
        return self.used_time / self._last / self.num_blocks

    @property
    def mean_running(self) -> float | None:
        """Running requests, over time."""
        return self.running_time / self._last if self._last else None
