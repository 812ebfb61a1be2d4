"""Memory of the server's two processes over time, and whether it grows."""

from __future__ import annotations

import asyncio
import time
from statistics import fmean
from typing import TYPE_CHECKING, Final

import psutil
from attrs import define, field, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERY_S: Final = 0.5
MOST_GROWTH: Final = 0.01
"""Growth a minute, as a share of a process's memory, that still counts as flat."""
NOISE_KB: Final = 4096.0
"""What a process may gain in all: the heap grows by steps of that size, leak or no leak."""


@frozen
class Growth:
    """Of one process, by least squares over the second half of its life.

    Attributes:
        name: of the process.
        mean_kb: its resident memory.
        slope_kb: what it gains a minute.
        minutes: how long it was looked at.
    """

    name: str
    mean_kb: float
    slope_kb: float
    minutes: float

    @property
    def is_flat(self) -> bool:
        """Whether it gains less than `MOST_GROWTH` a minute, or no more than noise."""
        is_noise = self.slope_kb * self.minutes < NOISE_KB
        return is_noise or self.slope_kb < MOST_GROWTH * self.mean_kb


def growth(name: str, samples: Sequence[tuple[float, float]]) -> Growth:
    """From (seconds, KB); the first half is warm-up."""
    half = (samples[0][0] + samples[-1][0]) / 2
    late = [sample for sample in samples if sample[0] >= half]
    middle, mean_kb = fmean(at for at, _ in late), fmean(kb for _, kb in late)
    spread = sum((at - middle) ** 2 for at, _ in late)
    common = sum((at - middle) * (kb - mean_kb) for at, kb in late)
    slope_kb = 60 * common / spread if spread else 0.0
    return Growth(name, mean_kb, slope_kb, (samples[-1][0] - half) / 60)


@define(eq=False)
class Scale:
    """Weighs a server: its front, and the engine's process beneath it."""

    pid: int
    samples: dict[str, list[tuple[float, float]]] = field(factory=dict, init=False)

    async def run(self) -> None:
        """Weigh until cancelled."""
        front = psutil.Process(self.pid)
        engines = [one for one in front.children() if "spawn_main" in " ".join(one.cmdline())]
        processes = {"front": front, "engine": engines[0]}
        self.samples = {name: [] for name in processes}
        while True:
            for name, process in processes.items():
                kb = process.memory_info().rss / 1024
                self.samples[name].append((time.monotonic(), kb))
            await asyncio.sleep(EVERY_S)

    def growths(self) -> list[Growth]:
        """What each process gained a minute."""
        return [growth(name, samples) for name, samples in self.samples.items()]
