"""How keys are cut into splits, and how the outputs of splits become one.

Each split leaves its output and the logarithm of its sum of exponentials; the merge weights the
outputs by these, as in Flash-Decoding (Dao, Haziza, Massa, Sizov, 2023). Both cut by the same rule
from the lengths on the device, so a split without keys needs to leave nothing.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from runners.triton.kernels.attention_parts import add_sink, pad_dim


@triton.jit
def cut_splits(length, num_splits, window: tl.constexpr, tile: tl.constexpr):
    """The first key that the query sees, and the keys of a split."""
    first = 0
    if window is not None:
        first = tl.maximum(length - window, 0)
    num_tiles = tl.cdiv(length - first, tile)
    return first, tl.cdiv(num_tiles, num_splits) * tile


@triton.jit
def merge_splits_kernel(
    outputs,
    sums,
    out,
    lengths,
    sinks,
    num_splits,
    out_stride,
    out_head_stride,
    request_cells,
    head_cells,
    width,
    value_dim: tl.constexpr,
    padded_value: tl.constexpr,
    window: tl.constexpr,
    tile: tl.constexpr,
    padded_splits: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    length = tl.load(lengths + request)
    begin, size = cut_splits(length, num_splits, window, tile)
    split = tl.arange(0, padded_splits)
    used = begin + split * size < length
    cell = request * request_cells + head * head_cells + split
    sum_ = tl.load(sums + cell, mask=used, other=float("-inf"))
    peak = tl.max(sum_, 0)
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    weights = tl.exp2(sum_ - peak)
    total = tl.sum(weights, 0)
    if sinks is not None:
        total = add_sink(peak, total, sinks, head, True)
    column = tl.arange(0, padded_value)
    inside = column < value_dim
    parts = tl.load(
        outputs + cell[:, None] * width + column[None, :],
        mask=used[:, None] & inside[None, :],
        other=0.0,
    )
    output = tl.sum(parts * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    places = out + request * out_stride + head * out_head_stride + column
    tl.store(places, output.to(out.dtype.element_ty), mask=inside)


def merge_splits(
    outputs: torch.Tensor,
    sums: torch.Tensor,
    out: torch.Tensor,
    *,
    lengths: torch.Tensor,
    sinks: torch.Tensor | None,
    window: int | None,
    num_splits: int,
    tile: int,
) -> None:
    """Write into `out`; a request of length 0 gets zeros.

    Args:
        outputs: [at least R, heads, num_splits, value_dim] fp32, contiguous.
        sums: [at least R, heads, num_splits] fp32, log2 of each split's sum of exponentials.
        out: [R, heads, value_dim].
        lengths: [R] int32.
        sinks: [heads] or None.
        window, num_splits, tile: as given to the kernel that left `outputs`.
    """
    merge_splits_kernel[out.shape[:2]](
        outputs,
        sums,
        out,
        lengths,
        sinks,
        num_splits,
        *out.stride()[:2],
        *sums.stride()[:2],
        outputs.stride(2),
        value_dim=out.shape[2],
        padded_value=pad_dim(out.shape[2]),
        window=window,
        tile=tile,
        padded_splits=triton.next_power_of_2(num_splits),
    )
