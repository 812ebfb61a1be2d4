"""Queries and keys turn as in transformers, and keys and values are stored where asked."""

from __future__ import annotations

import pytest
import torch
from attrs import frozen
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from runners.triton.kernels.rotary import rotate_and_store, rotate_and_store_reference
from tests.kernels.support import Guards, assert_close


@frozen
class Sizes:
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    rotary_dim: int


SIZES = [
    Sizes(heads=1, kv_heads=1, head_dim=64, value_dim=64, rotary_dim=64),
    Sizes(heads=9, kv_heads=3, head_dim=80, value_dim=80, rotary_dim=80),
    Sizes(heads=4, kv_heads=2, head_dim=96, value_dim=48, rotary_dim=24),
    Sizes(heads=20, kv_heads=10, head_dim=256, value_dim=256, rotary_dim=192),
]


def _angles(num_tokens: int, rotary_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    positions = torch.randint(4000, (num_tokens, 1))
    # the halves differ, which no model asks for, so that taking one for the other shows
    angles = positions * 10000.0 ** (-torch.arange(rotary_dim) / rotary_dim)
    return angles.cos(), angles.sin()


def _inputs(
    guards: Guards, sizes: Sizes, num_tokens: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Query, key and value as views of one fused projection, heads apart, then cos and sin."""
    counts = [sizes.heads, sizes.kv_heads, sizes.kv_heads]
    dims = [sizes.head_dim, sizes.head_dim, sizes.value_dim]
    widths = [count * (dim + 4) for count, dim in zip(counts, dims, strict=True)]
    fused = guards.put(torch.randn(num_tokens, sum(widths)).to(dtype))
    parts = zip(fused.split(widths, dim=-1), counts, dims, strict=True)
    return (
        *(part.view(num_tokens, count, dim + 4)[:, :, :dim] for part, count, dim in parts),
        *(guards.put(part.to(dtype)) for part in _angles(num_tokens, sizes.rotary_dim)),
    )


def _cache(guards: Guards, sizes: Sizes, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        guards.empty(4, 8, sizes.kv_heads, sizes.head_dim, dtype=dtype),
        guards.empty(4, 8, sizes.kv_heads, sizes.value_dim, dtype=dtype),
    )


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sizes.head_dim}")
@pytest.mark.parametrize("slots", [[5], [31, 0, -1, 17], [-1, -1]])
def test_turned_and_stored(device: str, dtype: torch.dtype, sizes: Sizes, slots: list[int]) -> None:
    guards = Guards(device)
    inputs = _inputs(guards, sizes, len(slots), dtype)
    before = [part.clone() for part in inputs]
    rotated = guards.empty(*inputs[0].shape, dtype=dtype)
    cache = _cache(guards, sizes, dtype)
    where = guards.put(torch.tensor(slots, dtype=torch.int32))
    expected = [rotated.clone(), *(part.clone() for part in cache)]
    rotate_and_store_reference(*inputs, *expected, where)
    rotate_and_store(*inputs, rotated, *cache, where)
    guards.check()
    assert_close(rotated, expected[0])
    for got, wanted in zip(cache, expected[1:], strict=True):
        assert torch.equal(got.isnan(), wanted.isnan())
        assert_close(got.nan_to_num(), wanted.nan_to_num())
    assert all(torch.equal(*pair) for pair in zip(inputs, before, strict=True))


def test_the_query_may_be_turned_where_it_lies(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    sizes = SIZES[2]
    query, key, value, cos, sin = _inputs(guards, sizes, 3, dtype)
    cache = _cache(guards, sizes, dtype)
    slots = guards.put(torch.tensor([7, 8, -1], dtype=torch.int32))
    elsewhere, untouched = torch.empty_like(query), (key.clone(), value.clone())
    rotate_and_store(query, key, value, cos, sin, elsewhere, *cache, slots)
    rotate_and_store(query, key, value, cos, sin, query, *cache, slots)
    guards.check()
    assert torch.equal(query, elsewhere)
    assert torch.equal(key, untouched[0])
    assert torch.equal(value, untouched[1])


def test_angles_and_convention_are_those_of_transformers(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    sizes = Sizes(heads=6, kv_heads=2, head_dim=64, value_dim=64, rotary_dim=64)
    query, key, value, cos, sin = _inputs(guards, sizes, 5, dtype)
    keys, values = _cache(guards, sizes, dtype)
    slots = guards.put(torch.arange(5, dtype=torch.int64))
    turned = apply_rotary_pos_emb(query[None], key[None], cos[None], sin[None], unsqueeze_dim=2)
    rotated = torch.empty_like(query)
    rotate_and_store(query, key, value, cos, sin, rotated, keys, values, slots)
    assert_close(rotated, turned[0][0])
    assert_close(keys.view(-1, 2, 64)[:5], turned[1][0])
    assert torch.equal(values.view(-1, 2, 64)[:5], value)


def test_no_token_writes_nothing(device: str) -> None:
    guards = Guards(device)
    inputs = _inputs(guards, SIZES[0], 0, torch.float32)
    cache = _cache(guards, SIZES[0], torch.float32)
    slots = torch.empty(0, dtype=torch.int32, device=device)
    rotate_and_store(*inputs, torch.empty_like(inputs[0]), *cache, slots)
    assert cache[0].isnan().all()


def test_odd_and_too_wide_angles_are_refused(device: str) -> None:
    guards = Guards(device)
    query, key, value, cos, sin = _inputs(guards, SIZES[0], 1, torch.float32)
    cache = _cache(guards, SIZES[0], torch.float32)
    slots = torch.zeros(1, dtype=torch.int32, device=device)
    for wrong in (cos[:, :63], cos.repeat(1, 2)):
        with pytest.raises(ValueError, match="an even number up to 64 is needed"):
            rotate_and_store(query, key, value, wrong, sin, query, *cache, slots)
