"""Which sizes are tried for which row, for how long, and which are kept. It touches no GPU.

Rows are visited from the most usual to the least. Each may use an equal share of the time that is
left, so what one row does not need goes to the others; the sizes most like the best known ones are
tried first.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Protocol

import attrs
from attrs import define, field, frozen

from runners.triton.configs import AttentionConfig, Situation, known_arch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GRIDS = {
    "prefill": ((32, 64, 128), (32, 64, 128), (4, 8), (1, 2, 3, 4)),
    "decode": ((16,), (16, 32, 64, 128), (2, 4, 8), (1, 2, 3, 4, 5)),
}
"""By phase: the values tried of block_m, tile, num_warps, num_stages."""

LEAST_GAIN = 1.02
"""How many times as fast a new row must be: less is noise, and a change to review."""


class Machine(Protocol):
    """What the search wants to know of compilers and a GPU."""

    def compiling(
        self, situation: Situation, configs: Sequence[AttentionConfig]
    ) -> list[AttentionConfig]:
        """Those that compile, fit and do not spill."""

    def time(self, situation: Situation, config: AttentionConfig) -> float:
        """Microseconds of a launch. Any exception means that the sizes cannot be used."""

    def acceptable(self, situation: Situation, config: AttentionConfig) -> bool:
        """Whether the row would pass `make aot`, with every feature."""


@frozen
class Finding:
    """What became of one row.

    Attributes:
        old_time, new_time: microseconds; infinite where the old row could not be timed.
        num_tried, num_left: other sizes that were looked at, and those that time did not allow.
    """

    situation: Situation
    old: AttentionConfig
    new: AttentionConfig
    old_time: float
    new_time: float
    num_tried: int
    num_left: int

    def __str__(self) -> str:
        row = self.situation
        tried = f"{self.num_tried} of {self.num_tried + self.num_left} tried"
        speed = f"{self.old_time:.1f} us -> {self.new_time:.1f} us"
        gain = f"{self.old_time / self.new_time:.2f}x" if self.new != self.old else "as it was"
        sizes = ", ".join(str(value) for value in attrs.astuple(self.new))
        return (
            f"{row.arch} {row.phase} head_dim {row.head_dim} group {row.group} {row.dtype}: "
            f"{speed}, {gain} ({sizes}; {tried})"
        )


def visiting_order(situations: Sequence[Situation]) -> list[Situation]:
    """The most usual first; float16 directly after the bfloat16 row whose result it starts from."""
    return sorted(
        situations,
        key=lambda row: (
            (128, 64, 256).index(row.head_dim),
            (4, 8, 1).index(row.group),
            row.phase,
            row.dtype,
        ),
    )


def candidates(situation: Situation, near: AttentionConfig) -> list[AttentionConfig]:
    """Sizes whose shared memory may suffice, those most like `near` first."""
    # the bound is twice what some need; compilers will tell
    limit = 2 * known_arch(situation.arch).shared_bytes
    found = [near, *itertools.starmap(AttentionConfig, itertools.product(*GRIDS[situation.phase]))]
    return sorted(
        (
            config
            for config in dict.fromkeys(found)
            if config.block_m >= situation.group
            and config.shared_bound(situation.head_dim, 2) <= limit
        ),
        key=lambda config: distance(config, near),
    )


def distance(one: AttentionConfig, other: AttentionConfig) -> float:
    """Steps from one to the other: doublings of sizes and warps, single stages."""
    doublings = sum(
        abs(math.log2(getattr(one, name) / getattr(other, name)))
        for name in ("block_m", "tile", "num_warps")
    )
    return doublings + abs(one.num_stages - other.num_stages)


@define(eq=False)
class Search:
    """Looks for better rows.

    Attributes:
        rows: of the table, changed in place.
        batch: sizes that are compiled together.
        clock: seconds.
        unreached: rows for which no time was left.
    """

    rows: dict[Situation, AttentionConfig]
    machine: Machine
    batch: int
    clock: Callable[[], float]
    unreached: list[Situation] = field(factory=list, init=False)

    def run(self, arch: str, seconds: float) -> Iterator[Finding]:
        """Visit the rows of an architecture; `rows` holds a finding when it is yielded."""
        deadline = self.clock() + seconds
        order = visiting_order([row for row in self.rows if row.arch == arch])
        for place, situation in enumerate(order):
            left = deadline - self.clock()
            if left <= 0:
                self.unreached = order[place:]
                return
            finding = self._improve(situation, self.clock() + left / (len(order) - place))
            self.rows[situation] = finding.new
            yield finding

    def _improve(self, situation: Situation, until: float) -> Finding:
        old = self.rows[situation]
        old_time = self._time(situation, old)
        sibling = attrs.evolve(situation, dtype="bfloat16")
        others = [
            config for config in candidates(situation, self.rows.get(sibling, old)) if config != old
        ]
        times: dict[AttentionConfig, float] = {}
        for start in range(0, len(others), self.batch):
            if self.clock() >= until:
                break
            some = others[start : start + self.batch]
            good = self.machine.compiling(situation, some)
            for config in some:
                times[config] = self._time(situation, config) if config in good else math.inf
        new = self._choose(situation, times, old_time / LEAST_GAIN) or old
        new_time = times.get(new, old_time)
        num_left = len(others) - len(times)
        return Finding(situation, old, new, old_time, new_time, len(times), num_left)

    def _time(self, situation: Situation, config: AttentionConfig) -> float:
        try:
            return self.machine.time(situation, config)
        except Exception:
            return math.inf

    def _choose(
        self, situation: Situation, times: dict[AttentionConfig, float], limit: float
    ) -> AttentionConfig | None:
        """The fastest acceptable sizes that take less than `limit`."""
        for config in sorted(times, key=lambda config: times[config]):
            if not times[config] < limit:
                return None
            if self.machine.acceptable(situation, config):
                return config
        return None
