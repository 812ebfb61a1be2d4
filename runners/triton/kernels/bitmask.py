"""Forbid the tokens that a grammar does not allow, by a bit a token.

The bitmask's layout, and a program that spreads words of 32 tokens over its logits, are those of
XGrammar (Dong et al., 2024).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

WORDS = 128


@triton.jit
def apply_bitmask_kernel(
    logits, bitmask, rows, logits_stride, bitmask_stride, vocabulary, words: tl.constexpr
):
    index = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + index).to(tl.int64)
    if row < 0:
        return
    word = tl.program_id(1) * words + tl.arange(0, words)[:, None]
    bit = tl.arange(0, 32)[None, :]
    token = word * 32 + bit
    bits = tl.load(bitmask + row * bitmask_stride + word, mask=word * 32 < vocabulary, other=0)
    forbidden = (token < vocabulary) & (((bits >> bit) & 1) == 0)
    tl.store(logits + index * logits_stride + token, float("-inf"), mask=forbidden)


def apply_bitmask(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    """Write -inf in place over the logits of forbidden tokens.

    Args:
        logits: [L, V], last axis contiguous, any floating dtype.
        bitmask: [N, at least ceil(V / 32)] int32, last axis contiguous; token t is allowed where
            bit t % 32 of word t // 32 is set.
        rows: [L], int32 or int64; the bitmask's row of each row of logits, -1 = all allowed.
    """
    num_rows, vocabulary = logits.shape
    num_words = triton.cdiv(vocabulary, 32)
    if bitmask.shape[1] < num_words:
        raise ValueError(
            f"bitmask has {bitmask.shape[1]} words a row; {vocabulary} tokens need {num_words}"
        )
    if not logits.numel():
        return
    words = min(WORDS, triton.next_power_of_2(num_words))
    apply_bitmask_kernel[(num_rows, triton.cdiv(num_words, words))](
        logits, bitmask, rows, logits.stride(0), bitmask.stride(0), vocabulary, words
    )


def apply_bitmask_reference(
    logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor
) -> None:
    """The same in torch."""
    bits = bitmask[:, :, None] >> torch.arange(32, dtype=torch.int32, device=bitmask.device)
    forbidden = (bits & 1).flatten(1)[:, : logits.shape[1]] == 0
    chosen = forbidden[rows.clamp(min=0).long()] & (rows >= 0)[:, None]
    logits.masked_fill_(chosen, -torch.inf)
