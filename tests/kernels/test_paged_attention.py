"""Paged attention gives what torch gives, whatever mix of requests shares a launch."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
import torch

from runners.triton.configs import INTERPRETED, AttentionConfig
from runners.triton.kernels.paged_attention import attention_reference, paged_attention
from tests.kernels.support import Guards, assert_close, paged

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL = AttentionConfig(block_m=16, tile=32, num_warps=4, num_stages=2)
CHUNK_DECODE_VERIFY = {"counts": [9, 1, 4, 20], "lengths": [40, 33, 70, 20]}


def agree(
    device: str,
    dtype: torch.dtype = torch.float32,
    *,
    counts: Sequence[int],
    lengths: Sequence[int],
    kv_heads: int = 2,
    group: int = 4,
    head_dim: int = 64,
    value_dim: int | None = None,
    block_size: int = 16,
    num_shared: int = 0,
    num_padding: int = 0,
    has_sinks: bool = False,
    config: AttentionConfig = INTERPRETED,
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
    num_tokens = sum(counts)
    # as transformers gives it: the head is the outer axis, and every number is used once
    noise = torch.randn(heads, num_tokens + num_padding, head_dim, dtype=dtype)
    query = guards.put(noise).transpose(0, 1)
    out = guards.empty(len(query), heads, values.shape[3], dtype=dtype)
    arguments = {
        "starts": guards.put(torch.tensor([0, *accumulate(counts)], dtype=torch.int32)),
        "lengths": cache.lengths,
        "tables": cache.tables,
        "rows": cache.rows,
        "scale": head_dim**-0.5,
        "sinks": guards.put(torch.randn(heads, dtype=dtype)) if has_sinks else None,
        **options,
    }
    expected = attention_reference(query, cache.keys, values, **arguments)
    paged_attention(query, cache.keys, values, out, config=config, **arguments)
    guards.check()
    assert_close(out[:num_tokens], expected[:num_tokens])
    return out


def test_chunks_decodes_and_verification_share_a_launch(device: str, dtype: torch.dtype) -> None:
    agree(device, dtype, **CHUNK_DECODE_VERIFY, config=SMALL)


def test_window_softcap_and_sinks_go_together(device: str, dtype: torch.dtype) -> None:
    options = {"window": 13, "softcap": 2.0, "has_sinks": True, "config": SMALL}
    agree(device, dtype, **CHUNK_DECODE_VERIFY, **options)


@pytest.mark.parametrize("option", [{"softcap": 2.0}, {"has_sinks": True}, {"scale": 0.5}])
def test_options_go_alone(device: str, option: dict[str, float]) -> None:
    agree(device, counts=[3, 1], lengths=[40, 5], **option)


@pytest.mark.parametrize("window", [1, 8, 33, 1000])
def test_a_window_ends_anywhere(device: str, window: int) -> None:
    agree(device, counts=[40, 1, 6], lengths=[40, 97, 70], window=window, kv_heads=1, config=SMALL)


def test_the_first_token_of_a_request_sees_itself(device: str) -> None:
    agree(device, counts=[1], lengths=[1], window=1)


def test_lengths_end_at_before_and_after_a_block_and_a_tile(device: str) -> None:
    lengths = [15, 16, 17, 31, 32, 33]
    agree(device, counts=[1] * 6, lengths=lengths, kv_heads=1, config=SMALL)


def test_a_context_of_many_tiles(device: str) -> None:
    agree(device, counts=[1, 5], lengths=[650, 130])


@pytest.mark.parametrize("head_dim", [16, 80, 128, 256])
def test_head_dims(device: str, head_dim: int) -> None:
    agree(device, counts=[3, 1], lengths=[19, 40], head_dim=head_dim, config=SMALL)


@pytest.mark.parametrize(("head_dim", "value_dim"), [(192, 128), (48, 80)])
def test_values_have_a_width_of_their_own(device: str, head_dim: int, value_dim: int) -> None:
    agree(device, counts=[3, 1], lengths=[19, 40], head_dim=head_dim, value_dim=value_dim)


@pytest.mark.parametrize("group", [1, 3, 8, 20])
def test_groups(device: str, group: int) -> None:
    # of 3 heads a program takes 5 queries: its rows end at a tile's end, and one row is left over
    agree(device, counts=[11, 1, 6], lengths=[38, 7, 6], group=group, config=SMALL)


@pytest.mark.parametrize(("block_size", "tile"), [(8, 16), (8, 128), (16, 64), (32, 16), (32, 32)])
def test_blocks_and_tiles_need_not_fit(device: str, block_size: int, tile: int) -> None:
    config = AttentionConfig(block_m=32, tile=tile, num_warps=4, num_stages=2)
    sizes = {"block_size": block_size, "config": config}
    agree(device, counts=[10, 1], lengths=[70, 39], window=40, **sizes)


def test_requests_share_blocks(device: str) -> None:
    agree(device, counts=[1, 7, 4], lengths=[40, 55, 48], num_shared=2, config=SMALL)


@pytest.mark.parametrize("has_sinks", [False, True])
def test_rows_without_queries_or_keys_are_harmless(device: str, has_sinks: bool) -> None:
    counts, lengths = [0, 3, 0, 1, 1, 5], [0, 20, 17, 0, 33, 0]
    out = agree(device, counts=counts, lengths=lengths, has_sinks=has_sinks, config=SMALL)
    assert not out[3].any()
    assert not out[5:].any()


def test_tokens_of_no_request_are_left_alone(device: str) -> None:
    out = agree(device, counts=[2, 1], lengths=[9, 40], num_padding=6)
    assert out[3:].isnan().all()


def test_a_step_without_tokens_launches_nothing(device: str) -> None:
    agree(device, counts=[0], lengths=[9])


def test_the_reference_is_what_torch_calls_causal_attention(device: str) -> None:
    guards = Guards(device)
    cache = paged(guards, [40], kv_heads=2, head_dim=16)
    query = torch.randn(40, 6, 16, device=device)
    blocks = cache.tables[cache.rows[0], :3].long()
    # [heads, T, head_dim]
    k, v = (c[blocks].flatten(0, 1)[:40].transpose(0, 1) for c in (cache.keys, cache.values))
    expected = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1), k, v, is_causal=True, enable_gqa=True
    )
    starts = torch.tensor([0, 40], dtype=torch.int32, device=device)
    where = {"lengths": cache.lengths, "tables": cache.tables, "rows": cache.rows}
    got = attention_reference(query, cache.keys, cache.values, starts=starts, scale=0.25, **where)
    assert_close(got, expected.transpose(0, 1))


def test_a_window_of_three_keys_and_a_sink_by_hand(device: str) -> None:
    """All scores are 0: three keys weigh 1 each, a sink of log(2) weighs 2."""
    values = torch.arange(32.0, device=device).view(2, 16, 1, 1).repeat(1, 1, 1, 16)
    out = torch.empty(2, 1, 16, device=device)
    where = {"starts": [0, 2], "lengths": [6], "tables": [[1, 0]], "rows": [0]}
    paged_attention(
        torch.ones(2, 1, 16, device=device),
        torch.zeros_like(values),
        values,
        out,
        **{name: torch.tensor(it, dtype=torch.int32, device=device) for name, it in where.items()},
        scale=1.0,
        window=3,
        sinks=torch.tensor([math.log(2.0)], device=device),
        config=INTERPRETED,
    )
    # block 1 comes first, its values are 16, 17, ...; the queries are at positions 4 and 5
    torch.testing.assert_close(out[:, 0, 0].cpu(), torch.tensor([18 + 19 + 20, 19 + 20 + 21]) / 5)


@pytest.mark.parametrize(
    ("heads", "step", "words"),
    [(3, 1, "query has 3 heads"), (4, 2, "query has stride 2 along head_dim")],
)
def test_what_the_kernel_cannot_read_is_refused(heads: int, step: int, words: str) -> None:
    cache, numbers = torch.zeros(1, 16, 2, 16), torch.zeros(1, dtype=torch.int32)
    query = torch.zeros(1, heads, 16 * step)[..., ::step]
    where = {"starts": numbers, "lengths": numbers, "tables": numbers[None], "rows": numbers}
    with pytest.raises(ValueError, match=words):
        paged_attention(query, cache, cache, query, **where, scale=1.0, config=INTERPRETED)
