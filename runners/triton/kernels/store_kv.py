"""Write a step's keys and values into the paged cache.

One program a token; slot = block * block_size + offset, -1 for padding. As `reshape_and_cache` of
vLLM (Kwon et al., "PagedAttention", SOSP 2023).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def store_kv_kernel(
    key,
    value,
    keys,
    values,
    slots,
    key_stride,
    key_head_stride,
    value_stride,
    value_head_stride,
    keys_stride,
    values_stride,
    kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    value_dim: tl.constexpr,
    padded_key: tl.constexpr,
    padded_value: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    column = tl.arange(0, padded_key)
    head, place = column // head_dim, column % head_dim
    inside = column < kv_heads * head_dim
    found = tl.load(key + token * key_stride + head * key_head_stride + place, mask=inside)
    tl.store(keys + slot * keys_stride + column, found, mask=inside)
    column = tl.arange(0, padded_value)
    head, place = column // value_dim, column % value_dim
    inside = column < kv_heads * value_dim
    found = tl.load(value + token * value_stride + head * value_head_stride + place, mask=inside)
    tl.store(values + slot * values_stride + column, found, mask=inside)


def store_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Write in place.

    Args:
        key, value: [T, kv_heads, head_dim of each]; any token and head strides.
        keys, values: [num_blocks, block_size, kv_heads, head_dim of each], contiguous.
        slots: [T], int32 or int64; -1 = leave out.
    """
    num_tokens, kv_heads, head_dim = key.shape
    value_dim = value.shape[2]
    if not num_tokens:
        return
    store_kv_kernel[(num_tokens,)](
        key,
        value,
        keys,
        values,
        slots,
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        keys.stride(1),
        values.stride(1),
        kv_heads,
        head_dim,
        value_dim,
        triton.next_power_of_2(kv_heads * head_dim),
        triton.next_power_of_2(kv_heads * value_dim),
    )


def store_kv_reference(
    key: torch.Tensor,
    value: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """The same in torch."""
    real = slots >= 0
    places = slots[real].long()
    keys.view(-1, *key.shape[1:])[places] = key[real]
    values.view(-1, *value.shape[1:])[places] = value[real]
