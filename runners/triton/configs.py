"""Which block sizes a kernel runs with: one row of `table.json` for each situation.

The rows are chosen by the tuner on a GPU, or by hand where none was at hand; there is no run-time
autotuning, so start-up is the same every time and every row can be compiled ahead.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class AttentionConfig:
    """How an attention kernel is cut up.

    Attributes:
        block_m: rows of a program's query tile, (tokens x query heads of one KV head) packed; a
            power of two of at least 16.
        tile: keys a program looks at in one turn; a power of two of at least 16.
        num_warps, num_stages: Triton's launch options.
    """

    block_m: int
    tile: int
    num_warps: int
    num_stages: int


INTERPRETED = AttentionConfig(block_m=16, tile=128, num_warps=4, num_stages=2)
"""For the interpreter, where only the number of programs and turns counts."""
