"""The tuner's bench launches both attention kernels, and refuses sizes with another result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from runners.triton.configs import INTERPRETED, AttentionConfig, Situation
from runners.triton.kernels.paged_attention import attention_reference
from runners.triton.tuner import bench
from runners.triton.tuner.bench import Bench, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = {"prefill": Shape(2, 5, 40), "decode": Shape(3, 1, 40)}
OTHER = AttentionConfig(32, 64, 4, 2)


def measure(launch: Callable[[], None]) -> float:
    launch()
    return 0.25


@pytest.fixture
def small(device: str) -> Bench:
    return Bench(torch.device(device), 4, measure, num_blocks=20, shapes=SHAPES)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_launch_takes_what_was_measured_in_microseconds(small: Bench, phase: str) -> None:
    situation = Situation("sm_90", 16, 2, "float16", phase)
    assert small.time(situation, INTERPRETED) == 250
    assert small.time(situation, OTHER) == 250


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_what_is_timed_is_attention(small: Bench, phase: str) -> None:
    small.time(Situation("sm_90", 16, 2, "float16", phase), INTERPRETED)
    batch = small._batch
    assert batch is not None
    expected = attention_reference(
        batch.query,
        batch.keys,
        batch.values,
        starts=batch.starts,
        lengths=batch.lengths,
        tables=batch.tables,
        rows=batch.rows,
        scale=0.25,
    )
    torch.testing.assert_close(small._expected, expected.float(), rtol=0, atol=1e-2)


def test_sizes_with_another_result_are_refused(
    small: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    situation = Situation("sm_90", 16, 2, "float16", "decode")
    small.time(situation, INTERPRETED)
    monkeypatch.setattr(bench, "split_decode", lambda *tensors, **_: tensors[3].fill_(9))
    with pytest.raises(ValueError, match=r"config is .*; its result is not that of other sizes"):
        small.time(situation, OTHER)
