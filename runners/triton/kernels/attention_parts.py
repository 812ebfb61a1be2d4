"""What the attention kernels share: a walk over tiles of the paged cache with a running softmax.

One pass with fp32 running peak and total (Milakov and Gimelshein, "Online normalizer calculation
for softmax", 2018), tiled as in FlashAttention-2 (Dao, 2023). Tiles are gathered through the block
table, so a tile may be smaller or larger than a block.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_tile(cache, offsets, seen, dim: tl.constexpr, padded: tl.constexpr, masked: tl.constexpr):
    """[tile, padded] of keys or values; zero past `dim`, and where not `seen` if `masked`."""
    column = tl.arange(0, padded)
    pointers = cache + offsets[:, None] + column[None, :]
    if masked:
        return tl.load(pointers, mask=seen[:, None] & (column < dim)[None, :], other=0.0)
    if dim < padded:
        return tl.load(pointers, mask=(column < dim)[None, :], other=0.0)
    return tl.load(pointers)


@triton.jit
def mask_scores(scores, key, positions, window: tl.constexpr):
    """-inf where the key comes after the query, or `window` or more before it."""
    visible = key[None, :] <= positions[:, None]
    if window is not None:
        visible = visible & (key[None, :] > positions[:, None] - window)
    return tl.where(visible, scores, float("-inf"))


@triton.jit
def update_softmax(scores, factor, peak, total):
    """Weights of a tile, the rescaling of what came before, the new peak (log2) and total."""
    new_peak = tl.maximum(peak, tl.max(scores, 1) * factor)
    # a row that has seen no key yet: -inf minus -inf must not become NaN
    base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
    weights = tl.exp2(scores * factor - base[:, None])
    rescale = tl.exp2(peak - base)
    return weights, rescale, new_peak, total * rescale + tl.sum(weights, 1)


@triton.jit
def empty_state(block_m: tl.constexpr, padded_value: tl.constexpr):
    """Output, peak and total before the first key."""
    output = tl.zeros([block_m, padded_value], tl.float32)
    peak = tl.full([block_m], float("-inf"), tl.float32)
    return output, peak, tl.zeros([block_m], tl.float32)


@triton.jit
def visit_tiles(
    state, query, positions, cache, factors, first, last, sizes: tl.constexpr, masked: tl.constexpr
):
    """Attend to the keys from `first` up to `last`, a tile a turn.

    Args:
        state: output, peak and total so far; the new ones are returned.
        cache: the head's keys and values, the request's block ids and length, then block and token
            strides of keys and of values.
        factors: what `score_factors` gives.
        sizes: head_dim, value_dim, block_size, tile, window, whether capped.
        masked: unless so, every row sees every key of these tiles.
    """
    output, peak, total = state
    keys, values, table, length, keys_stride, keys_token, values_stride, values_token = cache
    head_dim, value_dim, block_size, tile, window, capped = sizes
    cap_factor, factor = factors
    key = first + tl.arange(0, tile)
    blocks = tl.load(table + key // block_size, mask=key < length, other=0)
    for start in tl.range(first, last, tile):
        key = start + tl.arange(0, tile)
        seen = key < length
        places = key % block_size
        here = blocks.to(tl.int64)
        # a turn ahead, or the tiles behind these ids could not be fetched while others are used
        blocks = tl.load(table + (key + tile) // block_size, mask=key + tile < length, other=0)
        offsets = here * keys_stride + places * keys_token
        found = load_tile(keys, offsets, seen, head_dim, query.shape[1], masked)
        scores = tl.dot(query, tl.trans(found), input_precision="ieee")
        if capped:
            scores = 2.0 * tl.sigmoid(scores * cap_factor) - 1.0
        if masked:
            scores = mask_scores(scores, key, positions, window)
        weights, rescale, peak, total = update_softmax(scores, factor, peak, total)
        offsets = here * values_stride + places * values_token
        found = load_tile(values, offsets, seen, value_dim, output.shape[1], masked)
        output = output * rescale[:, None]
        output = tl.dot(weights.to(found.dtype), found, output, input_precision="ieee")
    return output, peak, total


@triton.jit
def cut_tiles(earliest, latest, window: tl.constexpr, tile: tl.constexpr):
    """Where the tiles of queries at `earliest` to `latest` begin, need no mask, need one, end."""
    end = tl.cdiv(latest + 1, tile)
    first = 0
    unmasked = 0
    if window is not None:
        first = tl.maximum(earliest - window + 1, 0) // tile
        unmasked = tl.minimum(tl.cdiv(tl.maximum(latest - window + 1, 0), tile), end)
    masked = tl.maximum((earliest + 1) // tile, unmasked)
    return first * tile, unmasked * tile, masked * tile, end * tile


@triton.jit
def add_sink(peak, total, sinks, head, inside):
    """The total with each head's sink in it: a key without a value (Xiao et al., 2023)."""
    sink = tl.load(sinks + head, mask=inside, other=0.0).to(tl.float32)
    # without a key the peak is -inf and the total becomes inf: the output stays 0
    return total + tl.exp2(sink * LOG2E - peak)


def check_layout(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> int:
    """Query heads of one KV head; a ValueError where the kernels would read something else."""
    heads, kv_heads = query.shape[1], keys.shape[2]
    if heads % kv_heads:
        raise ValueError(
            f"query has {heads} heads, allowed are multiples of the {kv_heads} of keys"
        )
    for name, tensor in (("query", query), ("keys", keys), ("values", values)):
        if tensor.stride(-1) != 1:
            raise ValueError(
                f"{name} has stride {tensor.stride(-1)} along head_dim, only 1 is allowed"
            )
    return heads // kv_heads


def score_factors(scale: float, softcap: float | None) -> tuple[float, float]:
    """What a score is multiplied by before the soft cap, and what makes it a power of two.

    The cap is softcap * tanh(score * scale / softcap), and tanh(x) = 2 * sigmoid(2 * x) - 1.
    """
    if softcap is None:
        return 1.0, scale * math.log2(math.e)
    return 2.0 * scale / softcap, softcap * math.log2(math.e)


def pad_dim(dim: int) -> int:
    """The width of a tile in which `dim` columns fit: what `tl.dot` takes."""
    padded: int = triton.next_power_of_2(dim)
    return max(16, padded)
