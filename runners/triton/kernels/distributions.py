"""The distributions that rows are drawn from, written out for rejection sampling."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 4096
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def write_distributions_kernel(
    logits,
    temperature,
    tokens,
    limits,
    chances,
    size,
    logits_stride,
    chances_stride,
    tile: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = place < size
    heat = tl.load(temperature + index)
    own = chances + index * chances_stride
    if heat <= 0:
        tl.store(own + place, (place == tl.load(tokens + index)).to(tl.float32), mask=inside)
        return
    floor, top = tl.load(limits + index * 3), tl.load(limits + index * 3 + 1)
    mass = tl.load(limits + index * 3 + 2)
    found = tl.load(logits + index * logits_stride + place, mask=inside, other=float("-inf"))
    found = found.to(tl.float32)
    scale = LOG2_E / tl.maximum(heat, 1e-30)
    weight = tl.exp2(tl.where(found == top, 0.0, found - top) * scale)
    tl.store(own + place, tl.where(found >= floor, weight / mass, 0.0), mask=inside)


def write_distributions(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    tokens: torch.Tensor,
    limits: torch.Tensor,
    chances: torch.Tensor,
) -> None:
    """Probabilities of each row, after temperature and filters; all of a greedy one's is one token.

    Args:
        logits: [L, V], as given to `sample_tokens`.
        temperature: [L], fp32.
        tokens, limits: [L] and [L, 3], as `sample_tokens` wrote them.
        chances: [L, V], fp32, rows contiguous, written.
    """
    num_rows, size = logits.shape
    if not num_rows:
        return
    tile = min(TILE, triton.next_power_of_2(size))
    write_distributions_kernel[(num_rows, triton.cdiv(size, tile))](
        logits,
        temperature,
        tokens,
        limits,
        chances,
        size,
        logits.stride(0),
        chances.stride(0),
        tile,
    )


def write_distributions_reference(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    tokens: torch.Tensor,
    limits: torch.Tensor,
    chances: torch.Tensor,
) -> None:
    """The same in torch."""
    logits = logits.float()
    is_greedy = temperature[:, None] <= 0
    heat = torch.where(is_greedy, 1.0, temperature[:, None])
    kept = is_greedy | (logits >= limits[:, :1])
    drawn = (logits / heat).masked_fill(~kept, -torch.inf).softmax(dim=-1)
    certain = torch.nn.functional.one_hot(tokens.long(), logits.shape[1]).float()
    chances.copy_(torch.where(is_greedy, certain, drawn))
