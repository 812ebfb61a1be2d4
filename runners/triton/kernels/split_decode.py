"""Attention of one query token a request, its keys split among several programs.

A program takes the query heads of one KV head over one split; a second launch merges the splits by
their log-sum-exp. As Flash-Decoding (Dao, Haziza, Massa, Sizov, 2023). Splits are cut on the device
from the lengths, so the launch shape does not change while lengths grow.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from attrs import frozen

from runners.triton.configs import AttentionConfig
from runners.triton.kernels.attention_parts import (
    add_sink,
    check_layout,
    empty_state,
    pad_dim,
    score_factors,
    visit_tiles,
)
from runners.triton.kernels.merge_splits import cut_splits, merge_splits

MOST_SPLITS = 64


@frozen(eq=False)
class Workspace:
    """What the splits leave for the merge; one serves all layers of a model.

    Attributes:
        outputs: [R, heads, splits, value_dim] fp32, at least as large as any call needs.
        sums: [R, heads, splits] fp32, log2 of each split's sum of exponentials.
    """

    outputs: torch.Tensor
    sums: torch.Tensor


def make_workspace(
    max_requests: int, heads: int, value_dim: int, max_splits: int, device: torch.device | str
) -> Workspace:
    """Room for calls of at most so many requests and splits."""
    shape = (max_requests, heads, max_splits)
    return Workspace(
        torch.empty(*shape, value_dim, dtype=torch.float32, device=device),
        torch.empty(shape, dtype=torch.float32, device=device),
    )


def choose_num_splits(num_requests: int, kv_heads: int, num_processors: int) -> int:
    """The least power of two that gives every processor two programs, or 64."""
    splits = 1
    while splits < MOST_SPLITS and num_requests * kv_heads * splits < 2 * num_processors:
        splits *= 2
    return splits


@triton.jit
def split_decode_kernel(
    query,
    keys,
    values,
    out,
    outputs,
    sums,
    lengths,
    tables,
    rows,
    sinks,
    cap_factor,
    factor,
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
    request_cells,
    head_cells,
    width,
    tables_stride,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    value_dim: tl.constexpr,
    padded_dim: tl.constexpr,
    padded_value: tl.constexpr,
    block_size: tl.constexpr,
    window: tl.constexpr,
    capped: tl.constexpr,
    split: tl.constexpr,
    block_m: tl.constexpr,
    tile: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1).to(tl.int64)
    length = tl.load(lengths + request)
    begin, size = cut_splits(length, tl.num_programs(2), window, tile)
    first = begin + tl.program_id(2) * size
    last = tl.minimum(first + size, length)
    if split and first >= last:
        return
    row = tl.arange(0, block_m)
    inside = row < group
    head_start = kv_head * group
    column = tl.arange(0, padded_dim)
    places = query + request * query_stride + head_start * query_head_stride
    places += (row * query_head_stride)[:, None] + column[None, :]
    q = tl.load(places, mask=inside[:, None] & (column < head_dim)[None, :], other=0.0)
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
    # the first split begins where the window does: no key of it has to be masked
    sizes: tl.constexpr = (head_dim, value_dim, block_size, tile, None, capped)
    output, peak, total = visit_tiles(
        empty_state(block_m, padded_value),
        q,
        row * 0 + length - 1,
        cache,
        (cap_factor, factor),
        first,
        last,
        sizes,
        True,
    )
    column = tl.arange(0, padded_value)
    mask = inside[:, None] & (column < value_dim)[None, :]
    if split:
        # whatever tiles a split has, the query sees a key of them: the total is positive
        cell = request * request_cells + (head_start + row) * head_cells + tl.program_id(2)
        places = outputs + cell[:, None] * width + column[None, :]
        tl.store(sums + cell, peak + tl.log2(total), mask=inside)
        tl.store(places, output / total[:, None], mask=mask)
    else:
        if sinks is not None:
            total = add_sink(peak, total, sinks + head_start, row, inside)
        places = out + request * out_stride + head_start * out_head_stride
        places += (row * out_head_stride)[:, None] + column[None, :]
        output = output / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(places, output.to(out.dtype.element_ty), mask=mask)


def split_decode(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    *,
    lengths: torch.Tensor,
    tables: torch.Tensor,
    rows: torch.Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    num_splits: int,
    workspace: Workspace,
    config: AttentionConfig,
) -> None:
    """Write attention of every request's one query, its last token, into `out`.

    Args:
        query: [R, heads, head_dim], any token and head strides; the dtype of keys.
        out: [R, heads, value_dim], any dtype.
        lengths: [R] int32, keys of each request with this step's; 0 = a padded row, gets zeros.
        num_splits: programs for each request and KV head; with 1 there is no second launch.
        workspace: for at least R requests and num_splits splits; unused with 1.

    The rest as in `paged_attention`.
    """
    group = check_layout(query, keys, values)
    num_requests, kv_heads, value_dim = query.shape[0], keys.shape[2], values.shape[3]
    if not num_requests:
        return
    if num_splits > 1:
        _check_room(workspace, (num_requests, query.shape[1], num_splits, value_dim))
    split_decode_kernel[(num_requests, kv_heads, num_splits)](
        query,
        keys,
        values,
        out,
        workspace.outputs,
        workspace.sums,
        lengths,
        tables,
        rows,
        sinks,
        *score_factors(scale, softcap),
        *query.stride()[:2],
        *out.stride()[:2],
        *keys.stride()[:3],
        *values.stride()[:3],
        *workspace.sums.stride()[:2],
        workspace.outputs.stride(2),
        tables.stride(0),
        group=group,
        head_dim=query.shape[2],
        value_dim=value_dim,
        padded_dim=pad_dim(query.shape[2]),
        padded_value=pad_dim(value_dim),
        block_size=keys.shape[1],
        window=window,
        capped=softcap is not None,
        split=num_splits > 1,
        block_m=max(config.block_m, triton.next_power_of_2(group)),
        tile=config.tile,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    if num_splits > 1:
        merge_splits(
            workspace.outputs,
            workspace.sums,
            out,
            lengths=lengths,
            sinks=sinks,
            window=window,
            num_splits=num_splits,
            tile=config.tile,
        )


def _check_room(workspace: Workspace, needed: tuple[int, int, int, int]) -> None:
    for name, least, has in zip(
        ("requests", "heads", "splits", "value_dim"), needed, workspace.outputs.shape, strict=True
    ):
        if has < least:
            raise ValueError(f"workspace has {has} {name}, at least {least} are needed")
