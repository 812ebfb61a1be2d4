"""The named blocks are zero in every layer, and nothing else has changed."""

from __future__ import annotations

import pytest
import torch

from runners.triton.kernels.zero_blocks import zero_blocks, zero_blocks_reference
from tests.kernels.support import Guards


def _caches(guards: Guards, dtype: torch.dtype) -> list[torch.Tensor]:
    shapes = [(9, 16, 2, 64), (9, 16, 2, 64), (9, 4, 3, 10), (6, 16, 9, 80)]
    return [guards.put(torch.randn(shape).to(dtype)) for shape in shapes]


@pytest.mark.parametrize("blocks", [[3], [0, 5, -1, 2], [-1, -1], []])
def test_named_blocks_are_zeroed_and_no_other(
    device: str, dtype: torch.dtype, blocks: list[int]
) -> None:
    guards = Guards(device)
    caches = _caches(guards, dtype)
    ids = guards.put(torch.tensor(blocks, dtype=torch.int32))
    expected = [cache.clone() for cache in caches]
    zero_blocks_reference(expected, ids)
    zero_blocks(caches, ids)
    guards.check()
    for cache, wanted in zip(caches, expected, strict=True):
        assert torch.equal(cache, wanted)


def test_nan_goes_as_everything_else(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    cache = guards.empty(4, 16, 2, 64, dtype=dtype)
    zero_blocks([cache], torch.tensor([2], dtype=torch.int64, device=device))
    guards.check()
    assert not cache[2].any()
    assert cache[[0, 1, 3]].isnan().all()


def test_dtypes_may_differ(device: str) -> None:
    guards = Guards(device)
    caches = [
        guards.put(torch.ones(4, 32).to(dtype))
        for dtype in (torch.bfloat16, torch.int8, torch.float32)
    ]
    zero_blocks(caches, torch.tensor([1, 3], dtype=torch.int32, device=device))
    guards.check()
    for cache in caches:
        assert cache.float().sum(-1).tolist() == [32, 0, 32, 0]


def test_blocks_may_lie_apart(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    both = guards.put(torch.ones(4, 2, 16, 24).to(dtype))
    zero_blocks([both[:, 1]], torch.tensor([0, 2], dtype=torch.int32, device=device))
    guards.check()
    assert both.float().mean((2, 3)).tolist() == [[1, 0], [1, 1], [1, 0], [1, 1]]


def test_blocks_of_broken_words_are_refused(device: str) -> None:
    ids = torch.tensor([0], dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="tensors holds one of shape \\[4, 3\\]"):
        zero_blocks([torch.ones(4, 3, dtype=torch.float16, device=device)], ids)
    with pytest.raises(ValueError, match="blocks must be contiguous"):
        zero_blocks([torch.ones(4, 8, 8, device=device).transpose(1, 2)], ids)
