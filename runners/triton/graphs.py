"""DecodeGraphs: steps of one token a request, padded to a few sizes, each size captured once.

On the CPU, where nothing can be captured, the same padded step runs as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from runners.triton.inputs import StepInputs

NUM_WARM_UPS = 2


def graph_sizes(most: int) -> list[int]:
    """Batch sizes up to `most`: powers of two, from 16 on every 16, from 128 on every 64."""
    sizes = [1, 2, 4, 8, *range(16, 128, 16), *range(128, most + 64, 64)]
    return [size for size in sizes if size < most] + [most]


class DecodeGraphs:
    """Captured forward passes.

    Args:
        forward: (inputs) -> logits, [R, V]. It must read the inputs at the same addresses in
            every call of one size.
        sizes: batch sizes, ascending.
        device: where it runs.
    """

    def __init__(
        self,
        forward: Callable[[StepInputs], torch.Tensor],
        sizes: list[int],
        device: torch.device,
    ) -> None:
        self.sizes = sizes
        self._forward = forward
        self._device = device
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self._pool: Any = None

    def size_for(self, num_requests: int) -> int | None:
        """The smallest size that holds them; None if they are too many."""
        return next((size for size in self.sizes if size >= num_requests), None)

    def run(self, inputs: StepInputs) -> torch.Tensor:
        """[size, V] logits, overwritten by the next run."""
        if self._device.type != "cuda":
            return self._forward(inputs)
        size = len(inputs.lengths)
        if size not in self._graphs:
            self._graphs[size] = self._capture(inputs)
        graph, logits = self._graphs[size]
        graph.replay()
        return logits

    def _capture(self, inputs: StepInputs) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(NUM_WARM_UPS):
                self._forward(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = self._forward(inputs)
        if self._pool is None:
            self._pool = graph.pool()
        return graph, logits
