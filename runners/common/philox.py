"""Philox4x32-10, the counter-based generator: random words of a (seed, position), no state kept.

Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. The words are those of
Triton's `tl.philox`, bit for bit, so a runner on the CPU and one on a GPU draw the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DRAW, ACCEPT, REDRAW = range(3)
"""What the words of a position are for: its token; whether its draft is kept; the token instead."""

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(
    counter: Sequence[NDArray[np.uint64]], key: Sequence[NDArray[np.uint64]]
) -> list[NDArray[np.uint64]]:
    """Four 32-bit words from a counter of four and a key of two; each an array of uint64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1 = (second >> _HALF) ^ c1 ^ k0, second & _LOW
        c2, c3 = (first >> _HALF) ^ c3 ^ k1, first & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return [c0, c1, c2, c3]


def uniforms(
    seeds: Sequence[int], positions: Sequence[int], word: int = DRAW
) -> NDArray[np.float32]:
    """Numbers in [0, 1), one for each seed and position.

    The key is the seed modulo 2**64, the counter the position; the number is the word's upper 24
    bits over 2**24, which fp32 holds exactly.
    """
    key = np.array([seed % 2**64 for seed in seeds], dtype=np.uint64)
    counter = np.array(positions, dtype=np.uint64)
    zero = np.zeros_like(counter)
    words = philox([counter & _LOW, counter >> _HALF, zero, zero], [key & _LOW, key >> _HALF])
    return (words[word] >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)
