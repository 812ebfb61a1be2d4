"""Captured decode steps against uncaptured ones: the tokens must be the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define

from benchmarks.gpu_check.serving import Server, config_for, prompts_of
from runners.triton import TritonRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from benchmarks.gpu_check.models import Models
    from benchmarks.gpu_check.part import Figures
    from benchmarks.gpu_check.place import Place
    from runners.triton.inputs import StepInputs


def captured(runner: TritonRunner) -> list[int]:
    """The sizes for which the runner holds graphs: none where they cannot be captured."""
    return sorted(runner.graphs._graphs)


@define(eq=False)
class Uncaptured:
    """Stands where a runner keeps its graphs, and runs every step as it is."""

    forward: Callable[[StepInputs], torch.Tensor]

    def run(self, inputs: StepInputs) -> torch.Tensor:
        """[size, V] logits."""
        return self.forward(inputs)


def compare_graphs(place: Place, models: Models, size: str) -> Figures:
    """The same prompts with captured and with uncaptured steps, at a batch that is padded."""
    model = models(size)
    lengths, max_tokens = ([5, 16, 9], 4) if place.is_toy else ([40, 17, 200, 64, 129], 48)
    prompts = prompts_of(model.config.vocab_size, lengths)
    outputs, sizes = [], []
    for is_captured in (True, False):
        runner: Any = TritonRunner(model, config_for(lengths * 2, max_tokens))
        if not is_captured:
            runner.graphs = Uncaptured(runner._forward)
        server = Server(runner)
        outputs.append(server.serve(prompts, max_tokens))
        sizes += captured(runner) if is_captured else []
        server.close()
    found, expected = outputs
    pairs = list(zip(found, expected, strict=True))
    assert all(len(tokens) == max_tokens for pair in pairs for tokens in pair)
    agreed = [_agreed(*pair) for pair in pairs]
    return {
        "passed": found == expected and (place.is_toy or bool(sizes)),
        "captured": sizes,
        "requests": len(pairs),
        "equal_tokens": agreed,
    }


def _agreed(found: list[int], expected: list[int]) -> int:
    """Leading tokens that are the same."""
    same = [left == right for left, right in zip(found, expected, strict=True)]
    return [*same, False].index(False)
