"""One query a request gives what torch gives, however many programs share its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from runners.triton.configs import INTERPRETED, AttentionConfig
from runners.triton.kernels.paged_attention import attention_reference
from runners.triton.kernels.split_decode import (
    Workspace,
    choose_num_splits,
    make_workspace,
    split_decode,
)
from tests.kernels.support import Guards, assert_close, paged

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL = AttentionConfig(block_m=16, tile=32, num_warps=4, num_stages=2)


def agree(
    device: str,
    dtype: torch.dtype = torch.float32,
    *,
    lengths: Sequence[int],
    num_splits: int,
    kv_heads: int = 2,
    group: int = 4,
    head_dim: int = 64,
    value_dim: int | None = None,
    block_size: int = 16,
    num_shared: int = 0,
    has_sinks: bool = False,
    config: AttentionConfig = SMALL,
    **options: float,
) -> torch.Tensor:
    """Kernel and reference on the same scattered cache; returns what the kernel wrote."""
    guards, heads = Guards(device), kv_heads * group
    cache = paged(
        guards,
        lengths,
        kv_heads=kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        dtype=dtype,
        num_shared=num_shared,
    )
    values = cache.values
    if value_dim is not None:
        values = guards.put(values[..., :value_dim])
    # a part of a fused projection
    fused = guards.put(torch.randn(len(lengths), heads + 2 * kv_heads, head_dim, dtype=dtype))
    query = fused[:, kv_heads : kv_heads + heads]
    out = guards.empty(len(lengths), heads, values.shape[3], dtype=dtype)
    arguments = {
        "lengths": cache.lengths,
        "tables": cache.tables,
        "rows": cache.rows,
        "scale": head_dim**-0.5,
        "sinks": guards.put(torch.randn(heads, dtype=dtype)) if has_sinks else None,
        **options,
    }
    # larger than needed, and full of NaN: what a split left out must not be read
    shape = (len(lengths) + 1, heads, 9)
    workspace = Workspace(
        guards.empty(*shape, values.shape[3], dtype=torch.float32),
        guards.empty(*shape, dtype=torch.float32),
    )
    starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=device)
    expected = attention_reference(query, cache.keys, values, starts=starts, **arguments)
    split_decode(
        query,
        cache.keys,
        values,
        out,
        num_splits=num_splits,
        workspace=workspace,
        config=config,
        **arguments,
    )
    guards.check()
    assert_close(out, expected)
    return out


@pytest.mark.parametrize("num_splits", [1, 4])
def test_lengths_around_blocks_and_tiles(device: str, dtype: torch.dtype, num_splits: int) -> None:
    lengths = [1, 15, 16, 17, 33, 64, 65, 150]
    agree(device, dtype, lengths=lengths, num_splits=num_splits, kv_heads=1)


@pytest.mark.parametrize("num_splits", [1, 4])
def test_window_softcap_and_sinks_go_together(
    device: str, dtype: torch.dtype, num_splits: int
) -> None:
    options = {"window": 70, "softcap": 2.0, "has_sinks": True}
    agree(device, dtype, lengths=[150, 40], num_splits=num_splits, **options)


@pytest.mark.parametrize("num_splits", [1, 2])
@pytest.mark.parametrize(
    "option", [{"softcap": 2.0}, {"has_sinks": True}, {"window": 1}, {"window": 33}]
)
def test_options_go_alone(device: str, option: dict[str, float], num_splits: int) -> None:
    agree(device, lengths=[97], num_splits=num_splits, kv_heads=1, **option)


@pytest.mark.parametrize("num_splits", [2, 3, 8])
def test_splits_need_not_be_equal_or_used(device: str, num_splits: int) -> None:
    agree(device, lengths=[650, 130, 20], num_splits=num_splits, kv_heads=1)


@pytest.mark.parametrize("num_splits", [1, 4])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_a_row_of_length_0_gets_zeros(device: str, num_splits: int, has_sinks: bool) -> None:
    sizes = {"num_splits": num_splits, "has_sinks": has_sinks}
    assert not agree(device, lengths=[0, 40, 0], window=20, **sizes)[::2].any()


@pytest.mark.parametrize("head_dim", [80, 128, 256])
def test_head_dims(device: str, head_dim: int) -> None:
    agree(device, lengths=[40, 100], num_splits=2, kv_heads=1, head_dim=head_dim)


@pytest.mark.parametrize(("head_dim", "value_dim"), [(192, 128), (48, 80)])
def test_values_have_a_width_of_their_own(device: str, head_dim: int, value_dim: int) -> None:
    agree(device, lengths=[70], num_splits=2, head_dim=head_dim, value_dim=value_dim)


@pytest.mark.parametrize("group", [1, 3, 8, 20])
def test_groups(device: str, group: int) -> None:
    agree(device, lengths=[70, 9], num_splits=2, group=group)


@pytest.mark.parametrize(("block_size", "tile"), [(8, 16), (8, 128), (32, 16), (32, 64)])
def test_blocks_and_tiles_need_not_fit(device: str, block_size: int, tile: int) -> None:
    config = AttentionConfig(block_m=16, tile=tile, num_warps=4, num_stages=2)
    agree(device, lengths=[150, 30], num_splits=2, block_size=block_size, config=config)


def test_requests_share_blocks(device: str) -> None:
    agree(device, lengths=[40, 55, 48], num_splits=2, num_shared=2)


def test_a_step_without_requests_launches_nothing(device: str) -> None:
    cache = torch.empty(1, 16, 2, 16, device=device)
    numbers = torch.empty(0, dtype=torch.int32, device=device)
    split_decode(
        torch.empty(0, 4, 16, device=device),
        cache,
        cache,
        torch.empty(0, 4, 16, device=device),
        lengths=numbers,
        tables=numbers[None],
        rows=numbers,
        scale=1.0,
        num_splits=4,
        workspace=make_workspace(1, 4, 16, 4, device),
        config=INTERPRETED,
    )


def test_a_workspace_that_is_too_small_is_refused() -> None:
    cache, numbers = torch.zeros(1, 16, 2, 16), torch.zeros(1, dtype=torch.int32)
    query = torch.zeros(1, 4, 16)
    where = {"lengths": numbers, "tables": numbers[None], "rows": numbers}
    room = {"num_splits": 8, "workspace": make_workspace(1, 4, 16, 4, "cpu")}
    with pytest.raises(ValueError, match="workspace has 4 splits, at least 8 are needed"):
        split_decode(query, cache, cache, query, **where, **room, scale=1.0, config=INTERPRETED)


@pytest.mark.parametrize(
    ("num_requests", "kv_heads", "expected"), [(1, 8, 64), (1, 1, 64), (8, 8, 8), (33, 8, 1)]
)
def test_splits_fill_the_device_twice(num_requests: int, kv_heads: int, expected: int) -> None:
    assert choose_num_splits(num_requests, kv_heads, 132) == expected
