"""Cases of the kernels around attention: norms, rotary, activation, caches and blocks."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from benchmarks.gpu_check.caches import BLOCK_SIZE, noise
from benchmarks.gpu_check.cases import Case, gap, widened
from runners.triton.kernels.copy_blocks import copy_blocks, copy_blocks_reference
from runners.triton.kernels.rms_norm import rms_norm, rms_norm_reference
from runners.triton.kernels.rotary import rotate_and_store, rotate_and_store_reference
from runners.triton.kernels.silu_mul import silu_mul, silu_mul_reference
from runners.triton.kernels.store_kv import store_kv, store_kv_reference
from runners.triton.kernels.zero_blocks import zero_blocks, zero_blocks_reference

if TYPE_CHECKING:
    from benchmarks.gpu_check.place import Place

NUM_TOKENS, TOY_TOKENS = 777, 3
NUM_BLOCKS, TOY_BLOCKS = 100, 4


def tokens_of(place: Place) -> int:
    """How many tokens a case has."""
    return TOY_TOKENS if place.is_toy else NUM_TOKENS


def cache_of(place: Place, kv_heads: int, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """An empty cache: NaN."""
    blocks = TOY_BLOCKS if place.is_toy else NUM_BLOCKS
    shape = (blocks, BLOCK_SIZE, kv_heads, head_dim)
    return torch.full(shape, math.nan, dtype=dtype, device=place.device)


def slots_of(place: Place, num_slots: int) -> torch.Tensor:
    """Different slots in no order, every fifth of them padding."""
    slots = torch.randperm(num_slots)[: tokens_of(place)].int()
    slots[::5] = -1
    return slots.to(place.device)


def norm(hidden: int, offset: float, has_residual: bool, place: Place, dtype: torch.dtype) -> float:
    """Rows of a norm, with or without the sum before it."""
    x = noise(place, tokens_of(place), hidden, dtype=dtype)
    weight = noise(place, hidden, dtype=dtype)
    residual = noise(place, tokens_of(place), hidden, dtype=dtype) if has_residual else None
    wide = None if residual is None else widened(residual)
    expected = rms_norm_reference(x.float(), weight.float(), 1e-5, residual=wide, offset=offset)
    found = rms_norm(x, weight, 1e-5, residual=residual, offset=offset)
    if residual is None or wide is None:
        return gap((found, expected))
    return gap((found, expected), (residual, wide))


def norm_of_heads(place: Place, dtype: torch.dtype) -> float:
    """The heads of a slice of a fused projection, as Qwen3 norms them."""
    joined = noise(place, tokens_of(place), 12, 128, dtype=dtype)
    weight = noise(place, 128, dtype=dtype)
    query = joined[:, :8]
    expected = rms_norm_reference(query.float(), weight.float(), 1e-6)
    return gap((rms_norm(query, weight, 1e-6), expected))


def rotary(head_dim: int, rotary_dim: int, group: int, place: Place, dtype: torch.dtype) -> float:
    """Slices of a fused projection turned and stored."""
    count, kv_heads = tokens_of(place), 1 if place.is_toy else 8
    heads = kv_heads * group
    joined = noise(place, count, heads + 2 * kv_heads, head_dim, dtype=dtype)
    query, key, value = joined.split([heads, kv_heads, kv_heads], dim=1)
    angles = noise(place, count, rotary_dim, dtype=torch.float32)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    keys, values = (cache_of(place, kv_heads, head_dim, dtype) for _ in range(2))
    slots = slots_of(place, keys.shape[0] * BLOCK_SIZE)
    turned = torch.full(query.shape, math.nan, dtype=dtype, device=place.device)
    wide = [widened(tensor) for tensor in (query, key, value, cos, sin, turned, keys, values)]
    rotate_and_store_reference(*wide, slots)
    rotate_and_store(query, key, value, cos, sin, turned, keys, values, slots)
    return gap((turned, wide[5]), (keys, wide[6]), (values, wide[7]))


def activation(size: int, kind: str, place: Place, dtype: torch.dtype) -> float:
    """Gate and up of an MLP."""
    both = noise(place, tokens_of(place), 2 * size, dtype=dtype, scale=3.0)
    expected = silu_mul_reference(both.float(), activation=kind)
    return gap((silu_mul(both, activation=kind), expected))


def store(place: Place, dtype: torch.dtype) -> float:
    """Keys and values of different widths."""
    count = tokens_of(place)
    key, value = noise(place, count, 3, 80, dtype=dtype), noise(place, count, 3, 48, dtype=dtype)
    found = cache_of(place, 3, 80, dtype), cache_of(place, 3, 48, dtype)
    expected = found[0].clone(), found[1].clone()
    slots = slots_of(place, found[0].shape[0] * BLOCK_SIZE)
    store_kv(key, value, *found, slots)
    store_kv_reference(key, value, *expected, slots)
    return gap(*zip(found, expected, strict=True))


def copied(place: Place, dtype: torch.dtype) -> float:
    """Blocks of one cache over those of another."""
    source = cache_of(place, 8, 128, dtype).normal_()
    target = source.flip(0).contiguous()
    count = len(source) // 2
    ids = [torch.randperm(len(source))[:count].int().to(place.device) for _ in range(2)]
    ids[0][0] = -1
    expected = target.clone()
    copy_blocks(source, target, *ids)
    copy_blocks_reference(source, expected, *ids)
    return gap((target, expected))


def zeroed(place: Place, dtype: torch.dtype) -> float:
    """Blocks of the caches of some layers."""
    found = [cache_of(place, 8, 128, dtype).normal_() for _ in range(3)]
    expected = [tensor.clone() for tensor in found]
    ids = torch.tensor([3, -1, 0], dtype=torch.int32, device=place.device)
    zero_blocks(found, ids)
    zero_blocks_reference(expected, ids)
    return gap(*zip(found, expected, strict=True))


KERNELS = (
    Case("rms_norm", "hidden 4096, residual", partial(norm, 4096, 0.0, True), 3),
    Case("rms_norm", "hidden 2048", partial(norm, 2048, 0.0, False), in_toy=False),
    Case("rms_norm", "hidden 2304, offset 1", partial(norm, 2304, 1.0, True), 3, in_toy=False),
    Case("rms_norm", "heads of a slice", norm_of_heads, in_toy=False),
    Case("rotate_and_store", "head_dim 128, 32/8 heads", partial(rotary, 128, 128, 4)),
    Case("rotate_and_store", "head_dim 64", partial(rotary, 64, 64, 4), in_toy=False),
    Case("rotate_and_store", "head_dim 256", partial(rotary, 256, 256, 1), in_toy=False),
    Case("rotate_and_store", "96 of 128 turned", partial(rotary, 128, 96, 8), in_toy=False),
    Case("silu_mul", "size 14336", partial(activation, 14336, "silu"), 2),
    Case("silu_mul", "size 9216, gelu", partial(activation, 9216, "gelu_tanh"), 2, in_toy=False),
    Case("store_kv", "widths 80 and 48", store, 0),
    Case("copy_blocks", "half of the blocks", copied, 0),
    Case("zero_blocks", "three layers", zeroed, 0),
)
