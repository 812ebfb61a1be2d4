"""How long the GPU waits for the host in decode, from the GPU's own trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_check.serving import Server, config_for, prompts_of
from runners.triton import TritonRunner

if TYPE_CHECKING:
    from benchmarks.gpu_check.models import Models
    from benchmarks.gpu_check.part import Figures
    from benchmarks.gpu_check.place import Place

MIDDLE = 0.4, 0.9
"""From where to where, of all that the device did, steps are looked at for gaps: decode alone."""

LEAST_GAP_US = 5.0
"""A gap between kernels that the host makes; those within a graph are shorter."""


@torch.inference_mode()
def find_idle(place: Place, models: Models, size: str) -> Figures:
    """The share of the time in decode at batch 1 in which the GPU waits for the host."""
    lengths, max_tokens = ([16], 4) if place.is_toy else ([1024], 48)
    runner = TritonRunner(models(size), config_for(lengths, max_tokens, is_async=not place.is_toy))
    server = Server(runner)
    server.serve(prompts_of(runner.vocab_size, lengths, seed=8), max_tokens)
    activity = ProfilerActivity.CPU if place.is_toy else ProfilerActivity.CUDA
    with profile(activities=[activity]) as profiled:
        server.serve(prompts_of(runner.vocab_size, lengths), max_tokens)
        place.wait()
    server.close()
    kind = DeviceType.CPU if place.is_toy else DeviceType.CUDA
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiled.events()
        if event.device_type == kind
    )
    spans = spans[int(MIDDLE[0] * len(spans)) : int(MIDDLE[1] * len(spans))]
    return {"idle_share": round(idle_share(spans), 6), "events": len(spans)}


def idle_share(spans: list[tuple[float, float]]) -> float:
    """Of the time that spans in order of their begin cover, what lies in gaps that count."""
    idle, end = 0.0, spans[0][1]
    for begin, finish in spans:
        if begin - end > LEAST_GAP_US:
            idle += begin - end
        end = max(end, finish)
    return idle / (end - spans[0][0])
