"""Sizes of captured steps; capturing itself needs a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from planning import newest, state

from runners.common.batch import flatten
from runners.triton.graphs import DecodeGraphs, graph_sizes, size_for
from runners.triton.inputs import StepInputs, standalone


@pytest.mark.parametrize("most", [1, 2, 3, 8, 15, 16, 17, 100, 128, 129, 200, 256, 1000])
def test_sizes_rise_to_the_most_and_pad_little(most: int) -> None:
    sizes = graph_sizes(most)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, most)
    for count in range(1, most + 1):
        size = size_for(sizes, count)
        assert size is not None
        assert count <= size <= max(2 * count, count + 15 if count < 128 else count + 63)


def test_the_smallest_size_is_taken_and_too_many_have_none() -> None:
    sizes = [1, 2, 5]
    assert [size_for(sizes, count) for count in (1, 2, 3, 5, 6)] == [1, 2, 5, 5, None]


def test_on_the_cpu_every_step_is_run_anew() -> None:
    seen: list[StepInputs] = []

    def forward(inputs: StepInputs) -> torch.Tensor:
        seen.append(inputs)
        return inputs.input_ids[:, None] * torch.arange(3)

    graphs = DecodeGraphs(forward, torch.device("cpu"))
    for token in (4, 7):
        batch = flatten([newest(state("a", [token]))], 16)
        inputs = standalone(batch, torch.device("cpu"))
        assert np.array_equal(graphs.run(inputs)[0], [0, token, 2 * token])
        assert seen[-1] is inputs
