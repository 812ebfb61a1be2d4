"""What kernels that draw have in common: Philox numbers, and picking from masses; no kernel.

`runners.common.philox` and `runners.common.drawing` say the same on the CPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def philox_words(seed, position):
    """Words DRAW, ACCEPT, REDRAW of a 64-bit seed and a scalar or block of int64 positions."""
    low = position.to(tl.uint32)
    high = (position >> 32).to(tl.uint32)
    zero = low * 0
    draw, accept, redraw, _ = tl.philox(seed, low, high, zero, zero)
    return draw, accept, redraw


@triton.jit
def uniform_of(word):
    """The upper 24 bits of a word, as a number in [0, 1)."""
    return (word >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def pick(masses, place, offset, wanted):
    """The first place at which `offset` and the masses so far exceed `wanted`.

    Where rounding lets none, the last place that has a mass; a place without mass is never picked.
    """
    reached = (masses > 0) & (offset + tl.cumsum(masses, 0) > wanted)
    first = tl.min(tl.where(reached, place, 2147483647), 0)
    last = tl.max(tl.where(masses > 0, place, tl.min(place, 0)), 0)
    return tl.minimum(first, last)
