"""RMSNorm of the last axis, with the addition to the residual stream before it where wanted.

Rows of a tile are reduced each on its own, so a row's result does not depend on its batch. Zhang
and Sennrich, "Root Mean Square Layer Normalization" (2019); fused with the addition as in the
kernels of FasterTransformer and vLLM.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 1024


@triton.jit(do_not_specialize=["num_rows", "num_inner"])
def rms_norm_kernel(
    x,
    weight,
    residual,
    out,
    num_rows,
    num_inner,
    x_outer_stride,
    x_inner_stride,
    residual_outer_stride,
    residual_inner_stride,
    out_outer_stride,
    out_inner_stride,
    epsilon,
    offset,
    hidden: tl.constexpr,
    round_first: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0) * rows + tl.arange(0, rows)[:, None]
    outer, inner = (row // num_inner).to(tl.int64), (row % num_inner).to(tl.int64)
    column = tl.arange(0, block)[None, :]
    inside = (row < num_rows) & (column < hidden)
    place = x + outer * x_outer_stride + inner * x_inner_stride + column
    found = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        place = residual + outer * residual_outer_stride + inner * residual_inner_stride + column
        found += tl.load(place, mask=inside, other=0.0).to(tl.float32)
        total = found.to(residual.dtype.element_ty)
        tl.store(place, total, mask=inside)
        found = total.to(tl.float32)
    mean_square = tl.sum(found * found, axis=1)[:, None] / hidden
    normal = found * tl.rsqrt(mean_square + epsilon)
    if round_first:
        normal = normal.to(out.dtype.element_ty).to(tl.float32)
    scale = tl.load(weight + column, mask=column < hidden, other=0.0).to(tl.float32) + offset
    place = out + outer * out_outer_stride + inner * out_inner_stride + column
    tl.store(place, (normal * scale).to(out.dtype.element_ty), mask=inside)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    *,
    residual: torch.Tensor | None = None,
    offset: float = 0.0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Normalise, in fp32; what is rounded when is as in transformers.

    Args:
        x: [..., hidden], last axis contiguous. With more than two axes the leading ones, without
            the last of them, must fold into one (as in every view of one fused projection).
        weight: [hidden].
        residual: like x; x is added to it in place, and the sum, rounded to its dtype, is what is
            normalised.
        offset: added to the weight. 0 rounds before the weight is multiplied in (Llama), anything
            else after (Gemma, whose weights are stored minus 1).
        out: like x, may be x; a new contiguous tensor if None.

    Returns:
        `out`.
    """
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not x.numel():
        return out
    hidden = x.shape[-1]
    num_inner = x.shape[-2] if x.dim() > 2 else 1
    folded = [_fold(x, num_inner), _fold(out, num_inner)]
    added = folded[0] if residual is None else _fold(residual, num_inner)
    num_rows = folded[0].shape[0] * num_inner
    block = triton.next_power_of_2(hidden)
    rows = max(1, TILE // block)
    rms_norm_kernel[(triton.cdiv(num_rows, rows),)](
        x,
        weight,
        residual,
        out,
        num_rows,
        num_inner,
        *folded[0].stride()[:2],
        *added.stride()[:2],
        *folded[1].stride()[:2],
        epsilon,
        offset,
        hidden,
        offset == 0.0,
        rows,
        block,
        num_warps=min(16, max(1, rows * block // 512)),
    )
    return out


def _fold(tensor: torch.Tensor, num_inner: int) -> torch.Tensor:
    """As [outer, inner, hidden], without a copy."""
    if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
        raise ValueError(
            f"x, residual and out need a contiguous last axis; one of shape {list(tensor.shape)} "
            f"has stride {tensor.stride(-1)} there"
        )
    return tensor.view(-1, num_inner, tensor.shape[-1])


def rms_norm_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    *,
    residual: torch.Tensor | None = None,
    offset: float = 0.0,
) -> torch.Tensor:
    """The same in torch."""
    if residual is not None:
        residual += x
    found = (x if residual is None else residual).float()
    normal = found * torch.rsqrt(found.square().mean(-1, keepdim=True) + epsilon)
    if offset == 0.0:
        normal = normal.to(x.dtype).float()
    return (normal * (weight.float() + offset)).to(x.dtype)
