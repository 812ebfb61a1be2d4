"""The threshold of a row of logits from which on a given count or mass is kept; no kernel.

Bisection instead of a sort, as FlashInfer's sampling kernels (Ye et al., MLSys 2025) and Qrita
(Park et al., arXiv 2602.01518) do: first among the two largest logits of each lane, which stay in
registers and nearly always hold all that matters, then against the whole row, which is read once a
turn. Every turn snaps to logits that occur, so it ends when one value is left. Passes are unrolled
by two: more loads on their way at once than registers for a larger tile would allow.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_logits(row, place, size):
    """fp32, -inf beyond the end."""
    return tl.load(row + place, mask=place < size, other=float("-inf")).to(tl.float32)


@triton.jit
def weigh(logits, top, scale):
    """Probabilities over that of the likeliest; without a scale 1 each, so that sums count."""
    found = tl.full(logits.shape, 1.0, tl.float32)
    if scale is not None:
        found = tl.exp2(tl.where(logits == top, 0.0, logits - top) * scale)
    return found


@triton.jit
def survey(row, size, tile: tl.constexpr, num_tiles: tl.constexpr):
    """For each lane its largest logit, the first place of it, and its second largest logit."""
    lane = tl.arange(0, tile)
    first = tl.full([tile], float("-inf"), tl.float32)
    second = first
    where = lane
    for number in tl.range(num_tiles, loop_unroll_factor=2):
        place = number * tile + lane
        logits = load_logits(row, place, size)
        where = tl.where(logits > first, place, where)
        second = tl.maximum(second, tl.minimum(first, logits))
        first = tl.maximum(first, logits)
    return first, where, second


@triton.jit
def middle(low, high, turn):
    """A logit above `low` and at most `high`, halfway by value or, in turn, among all floats.

    By value few turns are enough for common logits, among the floats 32 are for any.
    """
    below = low.to(tl.int32, bitcast=True)
    above = high.to(tl.int32, bitcast=True)
    # the order of these integers is that of the floats
    below = below ^ ((below >> 31) & 0x7FFFFFFF)
    above = above ^ ((above >> 31) & 0x7FFFFFFF)
    key = (below | above) - ((below ^ above) >> 1)
    key = tl.where(turn == 0, below + 1, key)
    found = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    halfway = low * 0.5 + high * 0.5
    use = (turn % 2 == 1) & (low > float("-inf")) & (high < float("inf"))
    found = tl.where(use, halfway, found)
    # between -0 and the next float lies 0, which is not above -0
    return tl.where((found > low) & (found <= high), found, high)


@triton.jit
def narrow_in_lanes(first, second, top, scale, low, need):
    """The largest logit of the lanes such that theirs from it on weigh `need`, or `low`."""
    high = top
    heavy = weigh(first, top, scale)
    light = weigh(second, top, scale)
    turn = 1
    while low < high:
        pivot = middle(low, high, turn)
        in_first, in_second = first >= pivot, second >= pivot
        weight = tl.where(in_first, heavy, 0.0) + tl.where(in_second, light, 0.0)
        least = tl.minimum(
            tl.where(in_first, first, float("inf")), tl.where(in_second, second, float("inf"))
        )
        most = tl.maximum(
            tl.where(in_first, float("-inf"), first), tl.where(in_second, float("-inf"), second)
        )
        enough = tl.sum(weight, 0) >= need
        low = tl.where(enough, tl.min(least, 0), low)
        high = tl.where(enough, high, tl.max(most, 0))
        turn += 1
    return low


@triton.jit
def split_at(row, size, pivot, top, scale, tile: tl.constexpr, num_tiles: tl.constexpr):
    """Weight of the logits from `pivot` on, the least of them, and the largest below it.

    What lies beyond the end is -inf, so it is above no pivot and has no weight.
    """
    lane = tl.arange(0, tile)
    weight = tl.zeros([tile], tl.float32)
    least = tl.full([tile], float("inf"), tl.float32)
    most = tl.full([tile], float("-inf"), tl.float32)
    for number in tl.range(num_tiles, loop_unroll_factor=2):
        logits = load_logits(row, number * tile + lane, size)
        inside = logits >= pivot
        weight += tl.where(inside, weigh(logits, top, scale), 0.0)
        least = tl.minimum(least, tl.where(inside, logits, float("inf")))
        most = tl.maximum(most, tl.where(inside, float("-inf"), logits))
    return tl.sum(weight, 0), tl.min(least, 0), tl.max(most, 0)


@triton.jit
def find_floor(
    row, size, first, second, top, scale, low, need, tile: tl.constexpr, num_tiles: tl.constexpr
):
    """The largest logit of at least `low` such that the logits from it on weigh `need`.

    The first pivot is next to the lanes' answer: if what lies above it weighs too little, it is
    the row's answer too, after one pass.
    """
    low = narrow_in_lanes(first, second, top, scale, low, need)
    high = top
    turn = 0
    while low < high:
        pivot = middle(low, high, turn)
        weight, least, most = split_at(row, size, pivot, top, scale, tile, num_tiles)
        enough = weight >= need
        low = tl.where(enough, least, low)
        high = tl.where(enough, high, most)
        turn += 1
    return low
