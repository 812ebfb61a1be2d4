"""Place: the device that is checked, and the time that work takes there."""

from __future__ import annotations

import gc
import time
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import torch
from attrs import define

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.cuda import Event

Mark: TypeAlias = "Event | float"

LEAST_SECONDS = 0.05
"""What is measured at once lasts at least so long."""

MOST_REPEATS = 200
NUM_READINGS = 5


@define(eq=False)
class Place:
    """A GPU, or the CPU at toy size.

    Attributes:
        device: where tensors are made.
        is_toy: small sizes, and nothing timed means anything.
    """

    device: torch.device
    is_toy: bool

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """What kernels are checked in, the most important first."""
        if self.is_toy:
            return (torch.float32, torch.float16)  # the interpreter multiplies bfloat16 wrongly
        return (torch.bfloat16, torch.float16)

    @property
    def dtype(self) -> torch.dtype:
        """What everything is timed in."""
        return self.dtypes[0]

    @property
    def num_processors(self) -> int:
        """Multiprocessors of the GPU."""
        if self.is_toy:
            return 4
        return int(torch.cuda.get_device_properties(self.device).multi_processor_count)

    def wait(self) -> None:
        """Until the device has done all it was given; an error of it is raised here."""
        if not self.is_toy:
            torch.cuda.synchronize(self.device)

    def empty(self) -> None:
        """Give back the memory of what nobody holds any more."""
        gc.collect()
        if not self.is_toy:
            torch.cuda.empty_cache()

    def mark(self) -> Mark:
        """A moment of the device: when everything queued so far is done."""
        if self.is_toy:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @staticmethod
    def seconds(first: Mark, last: Mark) -> float:
        """Between two marks that the device has passed."""
        if isinstance(first, float) or isinstance(last, float):
            assert isinstance(first, float) and isinstance(last, float)
            return last - first
        return float(first.elapsed_time(last)) / 1e3

    def seconds_a_call(self, calls: Sequence[Callable[[], object]]) -> float:
        """Of calls that do the same on different data, one after another, without launch costs.

        They are captured as one graph and replayed; the median of some readings. Their data should
        be several times what the cache of the GPU holds.
        """
        for call in calls:
            call()
        self.wait()
        replay = self._captured(calls)
        replay()
        once = self._repeated(replay, 1)
        repeats = 1 if self.is_toy else min(MOST_REPEATS, int(LEAST_SECONDS / once) + 1)
        num_readings = 1 if self.is_toy else NUM_READINGS
        readings = [self._repeated(replay, repeats) for _ in range(num_readings)]
        return median(readings) / len(calls)

    def _captured(self, calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
        def run() -> None:
            for call in calls:
                call()

        if self.is_toy:
            return run
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        replay: Callable[[], None] = graph.replay
        return replay

    def _repeated(self, replay: Callable[[], None], repeats: int) -> float:
        """Seconds of one replay."""
        first = self.mark()
        for _ in range(repeats):
            replay()
        last = self.mark()
        self.wait()
        return self.seconds(first, last) / repeats
