"""Whole models in decode: tokens a second, where a step's time goes, graphs against no graphs.

The roofline is the time to read the weights and the keys and values once, at the data sheet's
bandwidth and at the one that plain code reached.
"""

from __future__ import annotations

import gc
import itertools
import json
from functools import partial
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field, frozen
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_check.goals import DATA_SHEET_TB_S
from benchmarks.gpu_check.models import build, kv_bytes, weight_bytes
from benchmarks.gpu_check.part import Check, Figures, Item
from benchmarks.gpu_check.serving import Launch, Server, config_for, prompts_of, watch
from runners.triton import TritonRunner
from runners.triton.loading import accept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import PreTrainedModel

    from benchmarks.gpu_check.place import Place
    from runners.triton.inputs import StepInputs

BUDGET = 8192
SETTLING, TOY_SETTLING = 4, 1
"""Decode steps at the beginning, in which graphs are captured, and at the end that do not count."""

MIDDLE = 0.4, 0.9
"""From where to where, of all that the device did, steps are looked at for gaps: decode alone."""

LEAST_GAP_US = 5.0
"""A gap between kernels that the host makes; those within a graph are shorter."""


@frozen
class Load:
    """Requests that all decode at once.

    Attributes:
        size: of the model.
        batch: requests.
        context: tokens of each prompt.
        steps: decode steps of all of them together, about.
        least: seconds it needs.
    """

    size: str
    batch: int
    context: int
    steps: int
    least: float = 6.0

    @property
    def name(self) -> str:
        """For the results."""
        return f"{self.size} {self.batch} x {self.context}"


LOADS = (
    Load("1B", 1, 1024, 200),
    Load("1B", 64, 1024, 128),
    Load("1B", 256, 128, 64),
    Load("8B", 1, 1024, 128, 12),
    Load("8B", 64, 1024, 100, 12),
)
TOY_LOADS = (Load("toy", 1, 16, 3), Load("toy", 2, 16, 3))


@define(eq=False)
class Models:
    """One model at a time, made when it is asked for."""

    place: Place
    _found: dict[str, PreTrainedModel] = field(factory=dict, init=False)

    def __call__(self, size: str) -> PreTrainedModel:
        """Accepted, with fused modules; a model of another size is let go."""
        if size not in self._found:
            self._found.clear()
            gc.collect()
            if not self.place.is_toy:
                torch.cuda.empty_cache()
            self._found[size] = accept(build(self.place, size))
        return self._found[size]


def items(check: Check) -> Iterator[Item]:
    """The comparison of graphs first, then the loads."""
    place, models = check.place, Models(check.place)
    bandwidth = measured_bandwidth(check)
    sizes = ("toy",) if place.is_toy else ("1B", "8B")
    for size in sizes:
        yield Item(f"{size} graphs", partial(compare_graphs, place, models, size), 8)
        for load in TOY_LOADS if place.is_toy else LOADS:
            if load.size == size:
                yield Item(load.name, partial(measure, place, models, load, bandwidth), load.least)
        yield Item(f"{size} idle", partial(find_idle, place, models, size), 6)


def conclude(found: dict[str, Figures]) -> Figures:
    """Passed if every comparison that was made found equal tokens."""
    compared = {name: figures for name, figures in found.items() if name.endswith("graphs")}
    equal = [figures.get("equal") for figures in compared.values() if "skipped" not in figures]
    return {"passed": all(equal) if equal else None}


def measured_bandwidth(check: Check) -> float | None:
    """TB/s that plain code read, if that was measured before."""
    path = check.directory / "gpu.json"
    if not path.is_file():
        return None
    parts = json.loads(path.read_text())["parts"]
    found = parts.get("machine", {}).get("conclusion", {}).get("read_tb_s")
    return found or None


def measure(
    place: Place, models: Callable[[str], PreTrainedModel], load: Load, bandwidth: float | None
) -> Figures:
    """One load."""
    model = models(load.size)
    lengths = [load.context] * load.batch
    chunks = -(-load.batch * load.context // BUDGET)
    settling = TOY_SETTLING if place.is_toy else SETTLING
    max_tokens = load.steps + chunks + 3 * settling
    runner = TritonRunner(model, config_for(lengths, max_tokens, budget=BUDGET))
    seen = _remember_inputs(runner)
    launches = watch(runner, place)
    server = Server(runner)
    server.serve(prompts_of(runner.vocab_size, lengths), max_tokens)
    place.wait()
    steady = [
        launch for launch in launches if launch.is_decode and launch.num_requests == load.batch
    ][settling:-settling]
    context = load.context + chunks + settling + len(steady) / 2
    needed = weight_bytes(model) + load.batch * context * kv_bytes(model)
    step = place.seconds(steady[0].ended, steady[-1].ended) / (len(steady) - 1)
    planned = [plan for plan in server.scheduler.steps.values() if plan.num_tokens == load.batch]
    found = {
        "tokens_s": round(load.batch / step, 3),
        "step_us": _us(step),
        "gigabytes": round(needed / 1e9, 6),
        "roofline_share": round(needed / (DATA_SHEET_TB_S * 1e12) / step, 6),
        "measured_roofline_share": bandwidth and round(needed / (bandwidth * 1e12) / step, 6),
        "scheduler_us": _us(median(plan.schedule_s + plan.update_s for plan in planned)),
        "launch_us": _us(median(launch.host_s for launch in steady)),
        "forward_us": _us(_forward_alone(place, runner, seen[-1])),
        "between_us": _us(_between(place, steady)),
        "steps": len(steady),
    }
    server.close()
    return found


def _between(place: Place, steady: list[Launch]) -> float:
    """Seconds of the device from the end of a step until the next one begins to be queued."""
    pairs = itertools.pairwise(steady)
    return mean(place.seconds(before.ended, after.begun) for before, after in pairs)


@torch.inference_mode()
def find_idle(place: Place, models: Callable[[str], PreTrainedModel], size: str) -> Figures:
    """The share of the time in decode at batch 1 in which the GPU waits for the host."""
    lengths, max_tokens = ([16], 4) if place.is_toy else ([1024], 48)
    runner = TritonRunner(
        models(size), config_for(lengths, max_tokens, budget=BUDGET, is_async=not place.is_toy)
    )
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


def _remember_inputs(runner: TritonRunner) -> list[StepInputs]:
    """A list that holds the inputs of the newest captured step."""
    seen: list[StepInputs] = []
    run = runner.graphs.run

    def remember(inputs: StepInputs) -> torch.Tensor:
        seen[:] = [inputs]
        return run(inputs)

    runner.graphs.run = remember  # type: ignore[method-assign]
    return seen


@torch.inference_mode()
def _forward_alone(place: Place, runner: TritonRunner, inputs: StepInputs) -> float:
    """Seconds of the model's forward pass, replayed without anything between."""
    repeats = 1 if place.is_toy else 20
    first = place.mark()
    for _ in range(repeats):
        runner.graphs.run(inputs)
    last = place.mark()
    place.wait()
    return place.seconds(first, last) / repeats


@define(eq=False)
class Uncaptured:
    """Stands where a runner keeps its graphs, and runs every step as it is."""

    forward: Callable[[StepInputs], torch.Tensor]

    def run(self, inputs: StepInputs) -> torch.Tensor:
        """[size, V] logits."""
        return self.forward(inputs)


def compare_graphs(place: Place, models: Callable[[str], PreTrainedModel], size: str) -> Figures:
    """The same prompts with captured and with uncaptured steps, at a batch that is padded."""
    model = models(size)
    lengths, max_tokens = ([5, 16, 9], 4) if place.is_toy else ([40, 17, 200, 64, 129], 48)
    prompts = prompts_of(model.config.vocab_size, lengths)
    outputs = []
    for is_captured in (True, False):
        runner: Any = TritonRunner(model, config_for(lengths * 2, max_tokens, budget=BUDGET))
        if not is_captured:
            runner.graphs = Uncaptured(runner._forward)
        server = Server(runner)
        outputs.append(server.serve(prompts, max_tokens))
        server.close()
    captured, expected = outputs
    pairs = list(zip(captured, expected, strict=True))
    assert all(len(tokens) == max_tokens for pair in pairs for tokens in pair)
    agreed = [_agreed(*pair) for pair in pairs]
    return {"equal": captured == expected, "requests": len(pairs), "equal_tokens": agreed}


def _agreed(found: list[int], expected: list[int]) -> int:
    """Leading tokens that are the same."""
    same = [left == right for left, right in zip(found, expected, strict=True)]
    return [*same, False].index(False)


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)
