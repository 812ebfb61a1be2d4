"""Repetition, presence and frequency penalties on rows of logits: a few programs a row, twice.

The first launch counts, by atomics, how often a row's tokens stand in its output and marks those of
its prompt; in the second, whoever takes a token's count out changes its logit. So only tokens that
occur are touched, and the counts are zeros again. The penalties are CTRL's (Keskar et al., 2019)
and OpenAI's.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 1024
MOST_PARTS = 8
"""Programs that share a row's tokens."""

MOST_ROWS = 64
"""Rows that are worked on at a time, for each of which there is a row of counts."""

IN_PROMPT = tl.constexpr(1 << 30)


@triton.jit
def first_place(repetition, prompt_length, tile: tl.constexpr):
    """Where this program starts; the prompt counts for the repetition penalty alone."""
    return tl.where(repetition != 1, 0, prompt_length) + tl.program_id(1) * tile


@triton.jit
def load_drafts(drafts, num_drafts, padded: tl.constexpr):
    """Drafts, and which of them this program is to look at: all or none."""
    place = tl.arange(0, padded)
    inside = place < tl.where(tl.program_id(1) == 0, tl.load(num_drafts), 0)
    return tl.load(drafts + place, mask=inside, other=0), inside


@triton.jit
def count_tokens_kernel(
    tokens,
    row_of,
    lengths,
    prompt_lengths,
    drafts,
    num_drafts,
    repetition,
    presence,
    frequency,
    counts,
    first_row,
    tokens_stride,
    drafts_stride,
    counts_stride,
    padded_drafts: tl.constexpr,
    tile: tl.constexpr,
):
    index = first_row + tl.program_id(0).to(tl.int64)
    owner = tl.load(row_of + index).to(tl.int64)
    again = tl.load(repetition + index)
    other = (tl.load(presence + index) != 0) | (tl.load(frequency + index) != 0)
    if (owner < 0) | ((again == 1) & (other == 0)):
        return
    own_counts = counts + tl.program_id(0).to(tl.int64) * counts_stride
    length = tl.load(lengths + index)
    prompt_length = tl.load(prompt_lengths + index)
    start = first_place(again, prompt_length, tile)
    while start < length:
        place = start + tl.arange(0, tile)
        inside = place < length
        token = tl.load(tokens + owner * tokens_stride + place, mask=inside, other=0)
        in_prompt = place < prompt_length
        tl.atomic_or(own_counts + token, IN_PROMPT, mask=inside & in_prompt, sem="relaxed")
        tl.atomic_add(own_counts + token, 1, mask=inside & (in_prompt == 0), sem="relaxed")
        start += tile * tl.num_programs(1)
    token, inside = load_drafts(drafts + index * drafts_stride, num_drafts + index, padded_drafts)
    tl.atomic_add(own_counts + token, 1, mask=inside, sem="relaxed")


@triton.jit
def penalise(row, own_counts, token, inside, repetition, presence, frequency):
    """Change the logits of tokens whose counts this is first to take."""
    # an exchange with 0, which Triton 3.6 cannot compile for AMD
    count = tl.atomic_and(own_counts + token, 0, mask=inside, sem="relaxed")
    count = tl.where(inside, count, 0)
    taken = count != 0
    logit = tl.load(row + token, mask=taken, other=0.0).to(tl.float32)
    logit = tl.where(logit > 0, tl.div_rn(logit, repetition), logit * repetition)
    outputs = count & (IN_PROMPT - 1)
    minus = tl.where(outputs > 0, presence + frequency * outputs.to(tl.float32), 0.0)
    tl.store(row + token, logit - minus, mask=taken)


@triton.jit
def apply_penalties_kernel(
    logits,
    tokens,
    row_of,
    lengths,
    prompt_lengths,
    drafts,
    num_drafts,
    repetition,
    presence,
    frequency,
    counts,
    first_row,
    logits_stride,
    tokens_stride,
    drafts_stride,
    counts_stride,
    padded_drafts: tl.constexpr,
    tile: tl.constexpr,
):
    index = first_row + tl.program_id(0).to(tl.int64)
    owner = tl.load(row_of + index).to(tl.int64)
    again = tl.load(repetition + index)
    once = tl.load(presence + index)
    each = tl.load(frequency + index)
    if (owner < 0) | ((again == 1) & (once == 0) & (each == 0)):
        return
    row = logits + index * logits_stride
    own_counts = counts + tl.program_id(0).to(tl.int64) * counts_stride
    length = tl.load(lengths + index)
    start = first_place(again, tl.load(prompt_lengths + index), tile)
    while start < length:
        place = start + tl.arange(0, tile)
        inside = place < length
        token = tl.load(tokens + owner * tokens_stride + place, mask=inside, other=0)
        penalise(row, own_counts, token, inside, again, once, each)
        start += tile * tl.num_programs(1)
    token, inside = load_drafts(drafts + index * drafts_stride, num_drafts + index, padded_drafts)
    penalise(row, own_counts, token, inside, again, once, each)


def apply_penalties(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    *,
    row_of: torch.Tensor,
    lengths: torch.Tensor,
    prompt_lengths: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    repetition: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
    counts: torch.Tensor | None = None,
) -> None:
    """Change logits in place; rows without a penalty are left at once.

    Args:
        logits: [L, V], fp32, fp16 or bf16, rows contiguous.
        tokens: [rows, longest], int32: a request's prompt and output, rows contiguous.
        row_of: [L], int32: the row of `tokens` whose request a row of logits is of; -1 = none.
        lengths, prompt_lengths: [L], int32: known tokens, and those of them that are the prompt.
        drafts: [L, D], int32: drafts assumed before the position; they count as output.
        num_drafts: [L], int32: how many of them.
        repetition, presence, frequency: [L], fp32; 1, 0 and 0 = none.
        counts: [rows at a time, V], int32, zeros before and after; None = made for the call.
    """
    num_rows, size = logits.shape
    if counts is None:
        shape = min(num_rows, MOST_ROWS), size
        counts = torch.zeros(shape, dtype=torch.int32, device=logits.device)
    params = row_of, lengths, prompt_lengths, drafts, num_drafts, repetition, presence, frequency
    strides = tokens.stride(0), drafts.stride(0), counts.stride(0)
    sizes = triton.next_power_of_2(max(1, drafts.shape[1])), TILE
    parts = min(MOST_PARTS, triton.cdiv(tokens.shape[1], TILE))
    for first in range(0, num_rows, len(counts)):
        grid = (min(len(counts), num_rows - first), parts)
        count_tokens_kernel[grid](tokens, *params, counts, first, *strides, *sizes)
        apply_penalties_kernel[grid](
            logits, tokens, *params, counts, first, logits.stride(0), *strides, *sizes
        )


def apply_penalties_reference(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    *,
    row_of: torch.Tensor,
    lengths: torch.Tensor,
    prompt_lengths: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    repetition: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
) -> None:
    """The same in torch, row after row."""
    for index, owner in enumerate(row_of.tolist()):
        if owner < 0:
            continue
        known = tokens[owner, : int(lengths[index])].long()
        assumed = drafts[index, : int(num_drafts[index])].long()
        outputs = torch.cat([known[int(prompt_lengths[index]) :], assumed])
        row = logits[index].float()
        seen = torch.cat([known, assumed]).unique()
        values, penalty = row[seen], repetition[index]
        row[seen] = torch.where(values > 0, values / penalty, values * penalty)
        times = torch.bincount(outputs, minlength=len(row))
        row -= presence[index] * (times > 0) + frequency[index] * times
        logits[index] = row.to(logits.dtype)
