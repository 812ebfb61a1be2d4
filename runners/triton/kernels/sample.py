"""Draw a token from each row of logits, without a sort: one program a row.

Top-k and top-p are one threshold each (`thresholds.py`); the draw inverts the cumulative
distribution in vocabulary order, as `runners.common.drawing`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from runners.common.drawing import draw, floors, weights
from runners.triton.kernels.drawing import philox_words, pick, uniform_of
from runners.triton.kernels.thresholds import find_floor, load_logits, split_at, survey, weigh

TILE = 4096
NUM_WARPS = 16
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def draw_from_row(
    row,
    size,
    top,
    scale,
    floor,
    uniform,
    tile: tl.constexpr,
    num_tiles: tl.constexpr,
    padded_tiles: tl.constexpr,
):
    """A token of the logits from `floor` on, and their weight."""
    lane = tl.arange(0, tile)
    index = tl.arange(0, padded_tiles)
    masses = tl.zeros([padded_tiles], tl.float32)
    for number in range(num_tiles):
        place = number * tile + lane
        logits = load_logits(row, place, size)
        mass = tl.sum(tl.where(logits >= floor, weigh(logits, top, scale), 0.0), 0)
        masses = tl.where(index == number, mass, masses)
    total = tl.sum(masses, 0)
    wanted = uniform * total
    chosen = pick(masses, index, 0.0, wanted)
    place = chosen * tile + lane
    logits = load_logits(row, place, size)
    mass = tl.where(logits >= floor, weigh(logits, top, scale), 0.0)
    before = tl.sum(tl.where(index < chosen, masses, 0.0), 0)
    return pick(mass, place, before, wanted), total


@triton.jit
def sample_tokens_kernel(
    logits,
    temperature,
    top_k,
    top_p,
    min_p,
    seeds,
    positions,
    tokens,
    limits,
    size,
    logits_stride,
    tile: tl.constexpr,
    num_tiles: tl.constexpr,
    padded_tiles: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64)
    row = logits + index * logits_stride
    heat = tl.load(temperature + index)
    first, where, second = survey(row, size, tile, num_tiles)
    top = tl.max(first, 0)
    if heat <= 0:
        tl.store(tokens + index, tl.min(tl.where(first == top, where, size), 0))
        return
    scale = LOG2_E / tl.maximum(heat, 1e-30)
    count = tl.load(top_k + index)
    share = tl.load(top_p + index)
    floor = tl.full([], float("-inf"), tl.float32)
    if (count > 0) & (count < size):
        need = count.to(tl.float32)
        floor = find_floor(row, size, first, second, top, None, floor, need, tile, num_tiles)
    if share < 1:
        mass, _, _ = split_at(row, size, floor, top, scale, tile, num_tiles)
        floor = find_floor(
            row, size, first, second, top, scale, floor, share * mass, tile, num_tiles
        )
    least = tl.load(min_p + index)
    if least > 0:
        floor = tl.maximum(floor, top + heat * tl.log(least))
    draw, _, _ = philox_words(tl.load(seeds + index), tl.load(positions + index))
    token, mass = draw_from_row(
        row, size, top, scale, floor, uniform_of(draw), tile, num_tiles, padded_tiles
    )
    tl.store(tokens + index, token)
    if limits is not None:
        tl.store(limits + index * 3, floor)
        tl.store(limits + index * 3 + 1, top)
        tl.store(limits + index * 3 + 2, mass)


def sample_tokens(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    tokens: torch.Tensor,
    *,
    limits: torch.Tensor | None = None,
    tile: int = TILE,
) -> None:
    """Write a token for each row.

    Args:
        logits: [L, V], fp32, fp16 or bf16, rows contiguous.
        temperature: [L], fp32; 0 = greedy (the lowest of the likeliest tokens).
        top_k: [L], int32; 0 = all.
        top_p, min_p: [L], fp32; 1 and 0 = all.
        seeds: [L], int64, the bits of an unsigned seed.
        positions: [L], int64, output tokens before this one.
        tokens: [L], int32, written.
        limits: [L, 3], fp32, contiguous, written for rows that are not greedy: the smallest logit
            kept, the largest, and the sum of exp((logit - largest) / temperature) over those kept.
        tile: logits a program looks at in one turn, a power of two.
    """
    num_rows, size = logits.shape
    if not num_rows:
        return
    tile = min(tile, triton.next_power_of_2(size))
    num_tiles = triton.cdiv(size, tile)
    sample_tokens_kernel[(num_rows,)](
        logits,
        temperature,
        top_k,
        top_p,
        min_p,
        seeds,
        positions,
        tokens,
        limits,
        size,
        logits.stride(0),
        tile,
        num_tiles,
        triton.next_power_of_2(num_tiles),
        num_warps=NUM_WARPS,
    )


def sample_tokens_reference(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    uniforms: torch.Tensor,
) -> torch.Tensor:
    """[L] tokens; the same in torch, from the numbers of `runners.common.philox.uniforms`."""
    logits = logits.float()
    heat = torch.where(temperature > 0, temperature, 1.0)
    floor = floors(logits, heat, top_k, top_p, min_p)
    drawn = draw(weights(logits, heat, floor), uniforms)
    return torch.where(temperature > 0, drawn, logits.argmax(dim=-1)).int()
