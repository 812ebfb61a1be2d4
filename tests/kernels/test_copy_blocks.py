"""Blocks arrive where they are sent, bit for bit, and nothing else has changed."""

from __future__ import annotations

import pytest
import torch

from runners.triton.kernels.copy_blocks import copy_blocks, copy_blocks_reference
from tests.kernels.support import Guards

PAIRS = [([4], [0]), ([0, 2, 5, -1], [3, -1, 1, 2]), ([-1], [-1]), ([], [])]


@pytest.mark.parametrize("block", [(1,), (16, 3, 80), (16, 5, 64)])
@pytest.mark.parametrize(("sources", "targets"), PAIRS)
def test_named_blocks_are_copied_and_no_other(
    device: str,
    dtype: torch.dtype,
    block: tuple[int, ...],
    sources: list[int],
    targets: list[int],
) -> None:
    guards = Guards(device)
    source = guards.put(torch.randn(6, *block).to(dtype))
    target = guards.put(torch.randn(4, *block).to(dtype))
    ids = [guards.put(torch.tensor(ids, dtype=torch.int32)) for ids in (sources, targets)]
    before, expected = source.clone(), target.clone()
    copy_blocks_reference(source, expected, *ids)
    copy_blocks(source, target, *ids)
    guards.check()
    assert torch.equal(target, expected)
    assert torch.equal(source, before)


def test_blocks_move_inside_one_tensor(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    cache = guards.put(torch.arange(6.0)[:, None].expand(6, 32).to(dtype))
    ids = [torch.tensor(ids, dtype=torch.int64, device=device) for ids in ([1, 4], [0, 5])]
    copy_blocks(cache, cache, *ids)
    guards.check()
    assert cache[:, 0].tolist() == [1, 1, 2, 3, 4, 4]


@pytest.mark.parametrize("other", [torch.bfloat16, torch.int8, torch.float8_e4m3fn])
def test_other_dtypes_arrive_bit_for_bit(device: str, other: torch.dtype) -> None:
    patterns = torch.arange(256, dtype=torch.uint8, device=device).repeat(2, 2).view(other)
    target = torch.zeros(2, *patterns.shape[1:], device=device).to(other)
    ids = torch.tensor([0, 1], dtype=torch.int32, device=device)
    copy_blocks(patterns, target, ids, ids.flip(0))
    assert torch.equal(target.view(torch.uint8), patterns.flip(0).view(torch.uint8))


def test_blocks_may_lie_apart(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    both = guards.put(torch.randn(4, 2, 16, 24).to(dtype))
    target = guards.empty(2, 16, 24, dtype=dtype)
    ids = [torch.tensor(ids, dtype=torch.int32, device=device) for ids in ([3, 0], [0, 1])]
    copy_blocks(both[:, 1], target, *ids)
    guards.check()
    assert torch.equal(target, both[[3, 0], 1])


def test_unlike_blocks_are_refused(device: str) -> None:
    ids = torch.tensor([0], dtype=torch.int32, device=device)
    source = torch.ones(2, 8, device=device)
    with pytest.raises(ValueError, match="target has blocks of \\[4\\]"):
        copy_blocks(source, torch.ones(2, 4, device=device), ids, ids)
    with pytest.raises(ValueError, match=r"torch.float16; those of source .* torch.float32"):
        copy_blocks(source, source.half(), ids, ids)
