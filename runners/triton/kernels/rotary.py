"""Rotary embedding of queries and keys, and the write of keys and values into the paged cache.

A program rotates some heads of one token; those of keys write straight into the cache, so rotated
keys are not stored twice. Su et al., "RoFormer" (2021), in the convention of Llama in
transformers (the halves of a head are rotated into one another); the write is that of `store_kv`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 2048


@triton.jit
def _rotate_heads(
    source,
    target,
    cos,
    sin,
    head,
    heads: tl.constexpr,
    head_stride,
    target_head_stride,
    head_dim: tl.constexpr,
    half: tl.constexpr,
    padded_half: tl.constexpr,
    padded_rest: tl.constexpr,
):
    source += head * head_stride
    target += head * target_head_stride
    column = tl.arange(0, padded_half)[None, :]
    half_inside = column < half
    inside = (head < heads) & half_inside
    cos_low = tl.load(cos + column, mask=half_inside, other=0.0).to(tl.float32)
    sin_low = tl.load(sin + column, mask=half_inside, other=0.0).to(tl.float32)
    cos_high = tl.load(cos + half + column, mask=half_inside, other=0.0).to(tl.float32)
    sin_high = tl.load(sin + half + column, mask=half_inside, other=0.0).to(tl.float32)
    low = tl.load(source + column, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(source + half + column, mask=inside, other=0.0).to(tl.float32)
    # the target may be the source: nothing is written before everything is read
    tl.debug_barrier()
    kind = target.dtype.element_ty
    tl.store(target + column, (low * cos_low - high * sin_low).to(kind), mask=inside)
    tl.store(target + half + column, (high * cos_high + low * sin_high).to(kind), mask=inside)
    if padded_rest > 0:
        column = 2 * half + tl.arange(0, padded_rest)[None, :]
        inside = (head < heads) & (column < head_dim)
        tl.store(target + column, tl.load(source + column, mask=inside), mask=inside)


@triton.jit
def rotate_and_store_kernel(
    query,
    key,
    value,
    cos,
    sin,
    rotated_query,
    keys,
    values,
    slots,
    query_stride,
    query_head_stride,
    key_stride,
    key_head_stride,
    value_stride,
    value_head_stride,
    cos_stride,
    sin_stride,
    rotated_stride,
    rotated_head_stride,
    keys_stride,
    values_stride,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    value_dim: tl.constexpr,
    half: tl.constexpr,
    query_tile: tl.constexpr,
    key_tile: tl.constexpr,
    padded_half: tl.constexpr,
    padded_rest: tl.constexpr,
    padded_value: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    query_parts: tl.constexpr = (heads + query_tile - 1) // query_tile
    cos += token * cos_stride
    sin += token * sin_stride
    if part < query_parts:
        head = part * query_tile + tl.arange(0, query_tile)[:, None]
        source = query + token * query_stride
        target = rotated_query + token * rotated_stride
        _rotate_heads(
            source,
            target,
            cos,
            sin,
            head,
            heads,
            query_head_stride,
            rotated_head_stride,
            head_dim,
            half,
            padded_half,
            padded_rest,
        )
        return
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    head = (part - query_parts) * key_tile + tl.arange(0, key_tile)[:, None]
    _rotate_heads(
        key + token * key_stride,
        keys + slot * keys_stride,
        cos,
        sin,
        head,
        kv_heads,
        key_head_stride,
        head_dim,
        head_dim,
        half,
        padded_half,
        padded_rest,
    )
    column = tl.arange(0, padded_value)[None, :]
    inside = (head < kv_heads) & (column < value_dim)
    source = value + token * value_stride + head * value_head_stride + column
    target = values + slot * values_stride + head * value_dim + column
    tl.store(target, tl.load(source, mask=inside), mask=inside)


def rotate_and_store(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    rotated_query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Rotate in fp32, round once, and write in place.

    Args:
        query: [T, heads, head_dim].
        key, value: [T, kv_heads, head_dim of each]. Of all three any token and head strides.
        cos, sin: [T, rotary_dim], rotary_dim even; the rest of each head passes through.
        rotated_query: like query, and may be query itself.
        keys, values: [num_blocks, block_size, kv_heads, head_dim of each], contiguous.
        slots: [T], int32 or int64; -1 leaves keys and values out, the query is rotated all the
            same.
    """
    num_tokens, heads, head_dim = query.shape
    kv_heads, value_dim = value.shape[1:]
    rotary_dim = cos.shape[1]
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise ValueError(f"cos has {rotary_dim} columns; an even number up to {head_dim} is needed")
    if not num_tokens:
        return
    rest = head_dim - rotary_dim
    most = max(1, TILE // triton.next_power_of_2(head_dim))
    query_tile = min(most, triton.next_power_of_2(heads))
    key_tile = min(most, triton.next_power_of_2(kv_heads))
    num_parts = triton.cdiv(heads, query_tile) + triton.cdiv(kv_heads, key_tile)
    rotate_and_store_kernel[(num_tokens, num_parts)](
        query,
        key,
        value,
        cos,
        sin,
        rotated_query,
        keys,
        values,
        slots,
        *query.stride()[:2],
        *key.stride()[:2],
        *value.stride()[:2],
        cos.stride(0),
        sin.stride(0),
        *rotated_query.stride()[:2],
        keys.stride(1),
        values.stride(1),
        heads,
        kv_heads,
        head_dim,
        value_dim,
        rotary_dim // 2,
        query_tile,
        key_tile,
        triton.next_power_of_2(rotary_dim // 2),
        triton.next_power_of_2(rest) if rest else 0,
        triton.next_power_of_2(value_dim),
    )


def rotate_and_store_reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    rotated_query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """The same in torch."""
    real = slots >= 0
    places = slots[real].long()
    keys.view(-1, *key.shape[1:])[places] = _rotated(key, cos, sin)[real]
    values.view(-1, *value.shape[1:])[places] = value[real]
    rotated_query.copy_(_rotated(query, cos, sin))


def _rotated(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turning, rest = heads.float().tensor_split([cos.shape[1]], dim=-1)
    low, high = turning.chunk(2, dim=-1)
    crossed = torch.cat([-high, low], dim=-1)
    turned = turning * cos[:, None].float() + crossed * sin[:, None].float()
    return torch.cat([turned, rest], dim=-1).to(heads.dtype)
