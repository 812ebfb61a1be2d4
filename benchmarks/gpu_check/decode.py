"""Whole models in decode: tokens a second, where a step's time goes, graphs against no graphs.

The roofline is the time to read the weights and the keys and values once, at the data sheet's
bandwidth and at the one that plain code reached.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from functools import partial
from statistics import mean, median
from typing import TYPE_CHECKING

import torch
from attrs import frozen

from benchmarks.gpu_check.captures import captured, compare_graphs
from benchmarks.gpu_check.goals import DATA_SHEET_TB_S
from benchmarks.gpu_check.idle import find_idle
from benchmarks.gpu_check.models import Models, kv_bytes, weight_bytes
from benchmarks.gpu_check.part import Check, Figures, Item
from benchmarks.gpu_check.serving import BUDGET, Launch, Server, config_for, prompts_of, watch
from runners.triton import TritonRunner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.gpu_check.place import Place
    from runners.triton.inputs import StepInputs

SETTLING, TOY_SETTLING = 4, 1
"""Decode steps at the beginning, in which graphs are captured, and at the end that do not count."""


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


def items(check: Check) -> Iterator[Item]:
    """The comparison of graphs first, then the loads."""
    place, models = check.place, Models(check.place)
    bandwidth = measured_bandwidth(check)
    sizes = ("toy",) if place.is_toy else ("1B", "8B")
    for size in sizes:
        yield Item(f"{size} model", partial(describe, models, size), 8)
        yield Item(f"{size} graphs", partial(compare_graphs, place, models, size), 8)
        for load in TOY_LOADS if place.is_toy else LOADS:
            if load.size == size:
                yield Item(load.name, partial(measure, place, models, load, bandwidth), load.least)
        yield Item(f"{size} idle", partial(find_idle, place, models, size), 6)


def conclude(found: dict[str, Figures]) -> Figures:
    """Passed if every comparison that was made had graphs, and found equal tokens."""
    compared = {name: figures for name, figures in found.items() if name.endswith("graphs")}
    passed = [figures.get("passed") for figures in compared.values() if "skipped" not in figures]
    return {"passed": all(passed) if passed else None}


def describe(models: Models, size: str) -> Figures:
    """What is read in a step, and which modules are fused."""
    model = models(size)
    kinds = Counter(type(module).__name__ for module in model.modules())
    return {
        "weight_gigabytes": round(weight_bytes(model) / 1e9, 6),
        "kv_bytes": kv_bytes(model),
        "fused": {kind: count for kind, count in kinds.items() if kind.startswith("Fused")},
    }


def measured_bandwidth(check: Check) -> float | None:
    """TB/s that plain code read, if that was measured before."""
    path = check.directory / "gpu.json"
    if not path.is_file():
        return None
    parts = json.loads(path.read_text())["parts"]
    found = parts.get("machine", {}).get("conclusion", {}).get("read_tb_s")
    return found or None


def measure(place: Place, models: Models, load: Load, bandwidth: float | None) -> Figures:
    """One load."""
    model = models(load.size)
    lengths = [load.context] * load.batch
    chunks = -(-load.batch * load.context // BUDGET)
    settling = TOY_SETTLING if place.is_toy else SETTLING
    max_tokens = load.steps + chunks + 3 * settling
    runner = TritonRunner(model, config_for(lengths, max_tokens))
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
        "captured": captured(runner),
    }
    server.close()
    return found


def _between(place: Place, steady: list[Launch]) -> float:
    """Seconds of the device from the end of a step until the next one begins to be queued."""
    pairs = itertools.pairwise(steady)
    return mean(place.seconds(before.ended, after.begun) for before, after in pairs)


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


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)
