"""DecodeGraphs: steps of one token a request, padded to a few sizes, each size captured once.

On the CPU, where nothing can be captured, the same padded step runs as it is; so does every step
of a model whose forward pass waits for the device, as mixtures of experts may.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from runners.triton.inputs import StepInputs

log = logging.getLogger("headway.models")


def graph_sizes(most: int) -> list[int]:
    """Batch sizes up to `most`: powers of two, from 16 on every 16, from 128 on every 64."""
    sizes = [1, 2, 4, 8, *range(16, 128, 16), *range(128, most + 64, 64)]
    return [size for size in sizes if size < most] + [most]


def size_for(sizes: list[int], num_requests: int) -> int | None:
    """The smallest size that holds them; None if they are too many."""
    return next((size for size in sizes if size >= num_requests), None)


class DecodeGraphs:
    """Captured forward passes.

    Args:
        forward: (inputs) -> logits, [R, V]. It must read the inputs at the same addresses in
            every call of one size.
        device: where it runs.
    """

    def __init__(self, forward: Callable[[StepInputs], torch.Tensor], device: torch.device) -> None:
        self._forward = forward
        self._device = device
        self._captures = device.type == "cuda"
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self._stream: Any = None
        self._pool: Any = None

    def run(self, inputs: StepInputs) -> torch.Tensor:
        """[size, V] logits, overwritten by the next run."""
        size = len(inputs.lengths)
        if self._captures and size not in self._graphs:
            self._try_to_capture(inputs)
        if not self._captures:
            return self._forward(inputs)
        graph, logits = self._graphs[size]
        graph.replay()
        return logits

    def _try_to_capture(self, inputs: StepInputs) -> None:
        here = torch.cuda.current_stream(self._device)
        try:
            self._warm_up(inputs, here)
            self._graphs[len(inputs.lengths)] = self._capture(inputs)
        except RuntimeError as error:
            torch.cuda.set_stream(here)  # a capture that fails may leave its own behind
            self._captures = False
            log.warning("decode steps run without CUDA graphs, much slower: %s", error)

    def _warm_up(self, inputs: StepInputs, here: torch.cuda.Stream) -> None:
        """Compile and allocate, then make sure that nothing waits for the device."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        self._stream.wait_stream(here)
        before = torch.cuda.get_sync_debug_mode()
        with torch.cuda.stream(self._stream):
            self._forward(inputs)
            torch.cuda.set_sync_debug_mode("error")
            try:
                self._forward(inputs)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        here.wait_stream(self._stream)

    def _capture(self, inputs: StepInputs) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        graph = torch.cuda.CUDAGraph()
        # another thread may wait for an earlier step meanwhile, which only this mode allows
        mode = "thread_local"
        with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode=mode):
            logits = self._forward(inputs)
        if self._pool is None:
            self._pool = graph.pool()
        return graph, logits
