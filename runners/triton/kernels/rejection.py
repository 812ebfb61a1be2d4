"""Which drafts of a drafter that is certain of them stay, and the token after: a program a request.

A draft stays if it is the token that would have been drawn anyway. For such a drafter that is the
lossless rule of Leviathan et al. and Chen et al. (2023), and a seed gives the same tokens with and
without drafts. `lossless_rejection.py` has the rule for drafters with a distribution.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def verify_drafts_kernel(
    drawn,
    drafts,
    num_drafts,
    first_rows,
    tokens,
    counts,
    drafts_stride,
    tokens_stride,
    width,
    padded_width: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    first = tl.load(first_rows + request)
    place = tl.arange(0, padded_width)
    is_real = first >= 0
    number = tl.where(is_real, tl.load(num_drafts + request), -1)
    found = tl.load(drawn + first + place, mask=place <= number, other=-1)
    draft = tl.load(drafts + request * drafts_stride + place, mask=place < number, other=-1)
    accepted = tl.min(tl.where((place < number) & (draft == found), padded_width, place), 0)
    found = tl.where(place <= accepted, found, -1)
    tl.store(tokens + request * tokens_stride + place, found, mask=place < width)
    tl.store(counts + request, tl.where(is_real, accepted + 1, 0))


def verify_drafts(
    drawn: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    first_rows: torch.Tensor,
    tokens: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """Write accepted drafts, one token more, and -1 from there on.

    Args:
        drawn: [L], int32: the token of each row of logits.
        drafts: [R, D], int32, rows contiguous.
        num_drafts: [R], int32: how many of them are real.
        first_rows: [R], int32: a request's first row of logits; -1 = it does not sample.
        tokens: [R, D + 1], int32, rows contiguous, written.
        counts: [R], int32, written: how many of `tokens` are real.
    """
    num_requests, width = tokens.shape
    if not num_requests:
        return
    verify_drafts_kernel[(num_requests,)](
        drawn,
        drafts,
        num_drafts,
        first_rows,
        tokens,
        counts,
        drafts.stride(0),
        tokens.stride(0),
        width,
        triton.next_power_of_2(width),
        num_warps=1,
    )


def verify_drafts_reference(
    drawn: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    first_rows: torch.Tensor,
    tokens: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """The same in torch."""
    tokens.fill_(-1)
    counts.fill_(0)
    for request, first in enumerate(first_rows.tolist()):
        if first < 0:
            continue
        kept = 0
        while kept < num_drafts[request] and drafts[request, kept] == drawn[first + kept]:
            kept += 1
        tokens[request, : kept + 1] = drawn[first : first + kept + 1]
        counts[request] = kept + 1
