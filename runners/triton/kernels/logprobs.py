"""The log-probability of a token in its row of logits, and its rank: one program a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 8192
NUM_WARPS = 16
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def token_logprobs_kernel(
    logits,
    tokens,
    logprobs,
    ranks,
    size,
    logits_stride,
    tile: tl.constexpr,
    num_tiles: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64)
    token = tl.load(tokens + index)
    if token < 0:
        return
    row = logits + index * logits_stride
    own = tl.load(row + token).to(tl.float32)
    lane = tl.arange(0, tile)
    largest = tl.full([tile], float("-inf"), tl.float32)
    larger = tl.zeros([tile], tl.int32)
    for number in range(num_tiles):
        place = number * tile + lane
        found = tl.load(row + place, mask=place < size, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, found)
        larger += (found > own).to(tl.int32)
    top = tl.max(largest, 0)
    mass = tl.zeros([tile], tl.float32)
    for number in range(num_tiles):
        place = number * tile + lane
        found = tl.load(row + place, mask=place < size, other=float("-inf")).to(tl.float32)
        mass += tl.exp2(tl.where(found == top, 0.0, found - top) * LOG2_E)
    below = tl.where(own == top, 0.0, own - top)
    tl.store(logprobs + index, below - tl.log(tl.sum(mass, 0)))
    tl.store(ranks + index, tl.sum(larger, 0) + 1)


def token_logprobs(
    logits: torch.Tensor, tokens: torch.Tensor, *, tile: int = TILE
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [N] fp32, and ranks [N] int32: 1 + the logits that are larger.

    Args:
        logits: [N, V], fp32, fp16 or bf16, rows contiguous; the model's own.
        tokens: [N], int32 or int64; what belongs to -1 is left undefined.
        tile: logits a program looks at in one turn, a power of two.
    """
    num_rows, size = logits.shape
    logprobs = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    ranks = torch.empty(num_rows, dtype=torch.int32, device=logits.device)
    if num_rows:
        tile = min(tile, triton.next_power_of_2(size))
        token_logprobs_kernel[(num_rows,)](
            logits,
            tokens,
            logprobs,
            ranks,
            size,
            logits.stride(0),
            tile,
            triton.cdiv(size, tile),
            num_warps=NUM_WARPS,
        )
    return logprobs, ranks


def token_logprobs_reference(
    logits: torch.Tensor, tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same in torch."""
    rows = logits.float().log_softmax(dim=-1)
    own = rows.gather(-1, tokens[:, None].long())
    larger = logits > logits.gather(-1, tokens[:, None].long())
    return own.squeeze(1), larger.sum(dim=-1).int() + 1
