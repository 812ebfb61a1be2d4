"""Which drafts stay where the drafter has a distribution, and the token after: a program a request.

The rule of Leviathan et al. and Chen et al. (2023): what comes out is distributed as without
drafts. Whether a draft is accepted, and the token instead, are decided by words of their own of a
position's number, so they depend neither on each other nor on what the drafter drew with.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from runners.common.drawing import draw
from runners.common.philox import ACCEPT, DRAW, REDRAW
from runners.triton.kernels.drawing import philox_words, pick, uniform_of

TILE = 8192
NUM_WARPS = 16


@triton.jit
def load_masses(target, other, is_rejected, place, size):
    """Probabilities of a row, less those of the drafter where its draft was rejected."""
    inside = place < size
    mass = tl.load(target + place, mask=inside, other=0.0)
    return tl.maximum(mass - tl.load(other + place, mask=inside & is_rejected, other=0.0), 0.0)


@triton.jit
def sum_masses(
    target,
    other,
    is_rejected,
    size,
    tile: tl.constexpr,
    num_tiles: tl.constexpr,
    padded_tiles: tl.constexpr,
):
    """The mass of each tile of a row."""
    index = tl.arange(0, padded_tiles)
    masses = tl.zeros([padded_tiles], tl.float32)
    for number in range(num_tiles):
        place = number * tile + tl.arange(0, tile)
        mass = tl.sum(load_masses(target, other, is_rejected, place, size), 0)
        masses = tl.where(index == number, mass, masses)
    return masses


@triton.jit
def reject_drafts_kernel(
    target,
    proposed,
    drafts,
    num_drafts,
    first_rows,
    seeds,
    positions,
    tokens,
    counts,
    size,
    target_stride,
    proposed_stride,
    proposed_row_stride,
    drafts_stride,
    tokens_stride,
    width,
    padded_width: tl.constexpr,
    tile: tl.constexpr,
    num_tiles: tl.constexpr,
    padded_tiles: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    first = tl.load(first_rows + request).to(tl.int64)
    place = tl.arange(0, padded_width)
    own_tokens = tokens + request * tokens_stride + place
    if first < 0:
        tl.store(own_tokens, tl.full([padded_width], -1, tl.int32), mask=place < width)
        tl.store(counts + request, 0)
        return
    number = tl.load(num_drafts + request)
    inside = place < number
    draft = tl.load(drafts + request * drafts_stride + place, mask=inside, other=0)
    target += first * target_stride
    proposed += request * proposed_stride
    chance = tl.load(target + place.to(tl.int64) * target_stride + draft, mask=inside, other=0.0)
    other = proposed + place.to(tl.int64) * proposed_row_stride + draft
    likely = tl.load(other, mask=inside, other=1.0)
    place_in_output = tl.load(positions + request) + place
    drawing, accepting, redrawing = philox_words(tl.load(seeds + request), place_in_output)
    is_kept = inside & (uniform_of(accepting) * likely < chance)
    accepted = tl.min(tl.where(is_kept, padded_width, place), 0)
    is_rejected = accepted < number
    uniform = uniform_of(tl.where(is_rejected, redrawing, drawing))
    uniform = tl.sum(tl.where(place == accepted, uniform, 0.0), 0)
    target += accepted.to(tl.int64) * target_stride
    proposed += accepted.to(tl.int64) * proposed_row_stride
    masses = sum_masses(target, proposed, is_rejected, size, tile, num_tiles, padded_tiles)
    if tl.sum(masses, 0) <= 0:
        # the two are the same but for rounding: drawn as if nothing had been rejected
        is_rejected = accepted < 0
        masses = sum_masses(target, proposed, is_rejected, size, tile, num_tiles, padded_tiles)
    index = tl.arange(0, padded_tiles)
    wanted = uniform * tl.sum(masses, 0)
    chosen = pick(masses, index, 0.0, wanted)
    before = tl.sum(tl.where(index < chosen, masses, 0.0), 0)
    token = chosen * tile + tl.arange(0, tile)
    token = pick(load_masses(target, proposed, is_rejected, token, size), token, before, wanted)
    found = tl.where(place < accepted, draft, tl.where(place == accepted, token, -1))
    tl.store(own_tokens, found, mask=place < width)
    tl.store(counts + request, accepted + 1)


def reject_drafts(
    target: torch.Tensor,
    proposed: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    first_rows: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    tokens: torch.Tensor,
    counts: torch.Tensor,
    *,
    tile: int = TILE,
) -> None:
    """Write accepted drafts, one token more, and -1 from there on.

    A draft x is accepted with probability min(1, target[x] / proposed[x]), else the token is drawn
    from what target has above proposed; after the last draft it is drawn from target.

    Args:
        target: [L, V], fp32: the distribution of each row of logits; one-hot = greedy.
        proposed: [R, D, V], fp32: what the drafts were drawn from, by other numbers than these.
        drafts, num_drafts, first_rows, tokens, counts: as for `verify_drafts`.
        seeds: [R], int64, the bits of an unsigned seed.
        positions: [R], int64: output tokens before the request's first row.
        tile: probabilities a program looks at in one turn, a power of two.
    """
    num_requests, width = tokens.shape
    if not num_requests:
        return
    size = target.shape[1]
    tile = min(tile, triton.next_power_of_2(size))
    num_tiles = triton.cdiv(size, tile)
    reject_drafts_kernel[(num_requests,)](
        target,
        proposed,
        drafts,
        num_drafts,
        first_rows,
        seeds,
        positions,
        tokens,
        counts,
        size,
        target.stride(0),
        proposed.stride(0),
        proposed.stride(1),
        drafts.stride(0),
        tokens.stride(0),
        width,
        triton.next_power_of_2(width),
        tile,
        num_tiles,
        triton.next_power_of_2(num_tiles),
        num_warps=NUM_WARPS,
    )


def reject_drafts_reference(
    target: torch.Tensor,
    proposed: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    first_rows: torch.Tensor,
    uniforms: torch.Tensor,
    tokens: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """The same in torch, from [3, R, D + 1] numbers: word DRAW, ACCEPT, REDRAW of each position."""
    tokens.fill_(-1)
    counts.fill_(0)
    for request, first in enumerate(first_rows.tolist()):
        if first < 0:
            continue
        own, numbers = target[first:], uniforms[:, request]
        kept, number = 0, int(num_drafts[request])
        while kept < number:
            draft = drafts[request, kept].long()
            if numbers[ACCEPT, kept] * proposed[request, kept, draft] >= own[kept, draft]:
                break
            kept += 1
        masses, number_of_draw = own[kept], numbers[DRAW, kept]
        if kept < number:
            rest = (masses - proposed[request, kept]).clamp(min=0)
            masses, number_of_draw = rest if rest.any() else masses, numbers[REDRAW, kept]
        tokens[request, :kept] = drafts[request, :kept]
        tokens[request, kept] = draw(masses[None], number_of_draw[None])[0]
        counts[request] = kept + 1
