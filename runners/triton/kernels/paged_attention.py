"""Causal attention of a flattened variable-length batch over the paged cache, in one launch.

Prefill chunks, decodes and draft verification are all "n queries at the end of a request". A
program takes `block_m // group` query tokens of one request times the `group` query heads of one
KV head, so keys are read once per KV head; programs find their request by binary search, so the
launch shape depends on array sizes alone. As in the Triton backend of vLLM (Ringlein et al., "The
Anatomy of a Triton Attention Kernel", 2025) after FlashAttention-2 (Dao, 2023).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from runners.triton.configs import AttentionConfig
from runners.triton.kernels.attention_parts import (
    add_sink,
    check_layout,
    cut_tiles,
    empty_state,
    pad_dim,
    score_factors,
    visit_tiles,
)


@triton.jit
def find_request(starts, program, num_requests, block_q: tl.constexpr):
    """The last request whose programs do not begin after this one.

    Request i's begin at `starts[i] // block_q + i`, which leaves room for a partly filled last one.
    """
    low = program * 0
    high = low + num_requests
    while high - low > 1:
        middle = (low + high) // 2
        begins = tl.load(starts + middle) // block_q + middle
        low = tl.where(begins <= program, middle, low)
        high = tl.where(begins <= program, high, middle)
    return low


@triton.jit(do_not_specialize=["num_requests"])
def paged_attention_kernel(
    query,
    keys,
    values,
    out,
    starts,
    lengths,
    tables,
    rows,
    sinks,
    cap_factor,
    factor,
    num_requests,
    query_stride,
    query_head_stride,
    out_stride,
    out_head_stride,
    keys_stride,
    keys_token_stride,
    keys_head_stride,
    values_stride,
    values_token_stride,
    values_head_stride,
    tables_stride,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    value_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    padded_value: tl.constexpr,
    block_size: tl.constexpr,
    window: tl.constexpr,
    capped: tl.constexpr,
    block_m: tl.constexpr,
    tile: tl.constexpr,
):
    block_q: tl.constexpr = block_m // group
    # last first: a chunk's last queries have most keys, and must not be what everyone waits for
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1).to(tl.int64)
    request = find_request(starts, program, num_requests, block_q)
    start = tl.load(starts + request)
    num_queries = tl.load(starts + request + 1) - start
    first_query = (program - start // block_q - request) * block_q
    if first_query >= num_queries:
        return
    length = tl.load(lengths + request)
    before = length - num_queries
    earliest = before + first_query
    latest = before + tl.minimum(first_query + block_q, num_queries) - 1
    row = tl.arange(0, block_m)
    token, head = row // group, row % group
    inside = (token < block_q) & (token < num_queries - first_query)
    # the program's first row is far from the tensor's, its other rows are near
    token_start = (start + first_query).to(tl.int64)
    head_start = kv_head * group
    column = tl.arange(0, padded_dim)
    places = query + token_start * query_stride + head_start * query_head_stride
    places += (token * query_stride + head * query_head_stride)[:, None] + column[None, :]
    mask = inside[:, None] & (column < head_dim)[None, :]
    q = tl.load(places, mask=mask, other=0.0)
    cache = (
        keys + kv_head * keys_head_stride,
        values + kv_head * values_head_stride,
        tables + tl.load(rows + request).to(tl.int64) * tables_stride,
        length,
        keys_stride,
        keys_token_stride,
        values_stride,
        values_token_stride,
    )
    sizes: tl.constexpr = (head_dim, value_dim, block_size, tile, window, capped)
    factors = (cap_factor, factor)
    state = empty_state(block_m, padded_value)
    at = earliest + token
    first, unmasked, masked, end = cut_tiles(earliest, latest, window, tile)
    if window is not None:
        state = visit_tiles(state, q, at, cache, factors, first, unmasked, sizes, True)
    state = visit_tiles(state, q, at, cache, factors, unmasked, masked, sizes, False)
    output, peak, total = visit_tiles(state, q, at, cache, factors, masked, end, sizes, True)
    if sinks is not None:
        total = add_sink(peak, total, sinks + head_start, head, inside)
    output = output / tl.where(total == 0.0, 1.0, total)[:, None]
    column = tl.arange(0, padded_value)
    places = out + token_start * out_stride + head_start * out_head_stride
    places += (token * out_stride + head * out_head_stride)[:, None] + column[None, :]
    mask = inside[:, None] & (column < value_dim)[None, :]
    tl.store(places, output.to(out.dtype.element_ty), mask=mask)


def paged_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    *,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    tables: torch.Tensor,
    rows: torch.Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    config: AttentionConfig,
) -> None:
    """Write attention of every query into `out`; query i of n sits at position length - n + i.

    Args:
        query: [T, heads, head_dim], any token and head strides; the dtype of keys.
        keys, values: [num_blocks, block_size, kv_heads, head_dim of each]. The weights are rounded
            to the dtype of values.
        out: [T, heads, value_dim], any dtype.
        starts: [R + 1] int32, the first query of each request in T, then the end of the last.
        lengths: [R] int32, keys of each request with this step's; 0 = a padded row, gets zeros.
        tables: [rows, columns] int32 block ids; what lies past a length is never used.
        rows: [R] int32, each request's row of tables.
        scale: of the scores, positive.
        window: a query at position p sees the keys from p - window + 1 on.
        softcap: scores become softcap * tanh(score / softcap).
        sinks: [heads], a score of each head that takes part in the softmax only.
        config: block sizes; block_m is raised to the query heads of one KV head.
    """
    group = check_layout(query, keys, values)
    num_requests, kv_heads = lengths.shape[0], keys.shape[2]
    if not num_requests or not query.shape[0]:
        return
    block_m = max(config.block_m, triton.next_power_of_2(group))
    grid = (query.shape[0] // (block_m // group) + num_requests, kv_heads)
    paged_attention_kernel[grid](
        query,
        keys,
        values,
        out,
        starts,
        lengths,
        tables,
        rows,
        sinks,
        *score_factors(scale, softcap),
        num_requests,
        *query.stride()[:2],
        *out.stride()[:2],
        *keys.stride()[:3],
        *values.stride()[:3],
        tables.stride(0),
        group=group,
        head_dim=query.shape[2],
        value_dim=values.shape[3],
        padded_dim=pad_dim(query.shape[2]),
        padded_value=pad_dim(values.shape[3]),
        block_size=keys.shape[1],
        window=window,
        capped=softcap is not None,
        block_m=block_m,
        tile=config.tile,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )


def attention_reference(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    tables: torch.Tensor,
    rows: torch.Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same in torch, request by request, in fp32; tokens of no request are zero."""
    heads, block_size = query.shape[1], keys.shape[1]
    group = heads // keys.shape[2]
    out = query.new_zeros(query.shape[0], heads, values.shape[3])
    for request, length in enumerate(lengths.tolist()):
        first, last = starts[request : request + 2].tolist()
        if not length or first == last:
            continue
        blocks = tables[rows[request], : -(-length // block_size)].long()
        k, v = (
            cache[blocks].flatten(0, 1)[:length].float().repeat_interleave(group, dim=1)
            for cache in (keys, values)
        )
        scores = torch.einsum("qhd,khd->hqk", query[first:last].float(), k) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        key = torch.arange(length, device=query.device)
        distance = key[length - (last - first) :, None] - key
        seen = distance >= 0
        if window is not None:
            seen &= distance < window
        scores = scores.masked_fill(~seen, -torch.inf)
        if sinks is not None:
            sink = sinks.float()[:, None, None].expand(-1, last - first, 1)
            scores = torch.cat([scores, sink], dim=-1)
        weights = scores.softmax(dim=-1)[..., :length]
        out[first:last] = torch.einsum("hqk,khd->qhd", weights, v).to(out.dtype)
    return out
