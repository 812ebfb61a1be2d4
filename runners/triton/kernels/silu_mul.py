"""The gated activation of an MLP: act(gate) * up, from the fused gate-and-up projection.

Shazeer, "GLU Variants Improve Transformer" (2020). The activation is rounded to the dtype before
the product, as by two operations of torch: in fp16 over 99.9 % of the results are then bit for
bit those of transformers' LlamaMLP, with one rounding 73 %.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.nn import functional

TILE = 1024


@triton.jit(do_not_specialize=["num_rows"])
def silu_mul_kernel(
    gate_up,
    out,
    num_rows,
    gate_up_stride,
    out_stride,
    size: tl.constexpr,
    gelu_tanh: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)[:, None]
    column = tl.program_id(1) * block + tl.arange(0, block)[None, :]
    inside = (row < num_rows) & (column < size)
    place = gate_up + row * gate_up_stride + column
    gate = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(place + size, mask=inside, other=0.0).to(tl.float32)
    logit = gate
    if gelu_tanh:
        # (1 + tanh(u)) / 2 = sigmoid(2 u), with u = sqrt(2 / pi) * (x + 0.044715 x^3)
        logit = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    # below -80 the sigmoid is as good as 0, and the exponential in it would overflow
    active = (gate * tl.sigmoid(tl.maximum(logit, -80.0))).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * out_stride + column, (active * up).to(out.dtype.element_ty), mask=inside)


def silu_mul(
    gate_up: torch.Tensor, out: torch.Tensor | None = None, *, activation: str = "silu"
) -> torch.Tensor:
    """Activate and multiply.

    Args:
        gate_up: [..., 2 * size], the gate first, last axis contiguous; the leading axes must fold
            into one.
        out: [..., size], likewise; a new tensor if None.
        activation: "silu", or "gelu_tanh" (Gemma).

    Returns:
        `out`.
    """
    if activation not in ("silu", "gelu_tanh"):
        raise ValueError(f'activation is {activation!r}; "silu" and "gelu_tanh" are known')
    size = gate_up.shape[-1] // 2
    if out is None:
        shape = (*gate_up.shape[:-1], size)
        out = torch.empty(shape, dtype=gate_up.dtype, device=gate_up.device)
    if not gate_up.numel():
        return out
    both, result = gate_up.view(-1, 2 * size), out.view(-1, size)
    block = min(TILE, triton.next_power_of_2(size))
    rows = TILE // block
    silu_mul_kernel[(triton.cdiv(len(both), rows), triton.cdiv(size, block))](
        both,
        result,
        len(both),
        both.stride(0),
        result.stride(0),
        size,
        activation == "gelu_tanh",
        rows,
        block,
    )
    return out


def silu_mul_reference(gate_up: torch.Tensor, *, activation: str = "silu") -> torch.Tensor:
    """The same in torch."""
    gate, up = gate_up.chunk(2, dim=-1)
    if activation == "silu":
        return functional.silu(gate) * up
    return functional.gelu(gate, approximate="tanh") * up
