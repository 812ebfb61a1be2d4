"""How near each kernel comes to the memory bandwidth, or the matrix rate, of the device.

Blocks are scattered, and calls go through several caches in turn, together larger than the GPU's
own cache, so that nothing is read twice from there. Launch costs are left out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from benchmarks.gpu_check.caches import BLOCK_SIZE, Paged, noise, scattered
from benchmarks.gpu_check.goals import DATA_SHEET_TB_S
from benchmarks.gpu_check.part import Check, Figures, Item
from benchmarks.gpu_check.sampling_cases import sizes_of
from runners.triton.configs import current_arch, lookup
from runners.triton.kernels.paged_attention import paged_attention
from runners.triton.kernels.rms_norm import rms_norm
from runners.triton.kernels.rotary import rotate_and_store
from runners.triton.kernels.sample import sample_tokens
from runners.triton.kernels.silu_mul import silu_mul
from runners.triton.kernels.split_decode import choose_num_splits, make_workspace, split_decode
from runners.triton.kernels.store_kv import store_kv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.gpu_check.place import Place

KV_HEADS, GROUP, HEAD_DIM = 8, 4, 128
HIDDEN, GATED = 4096, 14336
DECODES = ((32, 4096), (64, 4096), (8, 4096), (1, 32768), (1, 131072))
PREFILLS = ((8192, 8192), (2048, 32768), (512, 4096))
COLD_BYTES = 400e6
"""Of all caches of a measurement together: several times what an H200 caches (60 MB)."""

DRAWS = {
    "greedy": (0.0, 0, 1.0),
    "plain": (1.0, 0, 1.0),
    "top_p": (1.0, 0, 0.9),
    "top_k": (1.0, 50, 1.0),
    "top_k and top_p": (0.8, 50, 0.9),
}
TOY_DRAWS = ("greedy", "plain")


def items(check: Check) -> Iterator[Item]:
    """Attention first, by the goals."""
    place = check.place
    decodes = ((2, 40),) if place.is_toy else DECODES
    prefills = ((9, 20),) if place.is_toy else PREFILLS
    for requests, length in decodes:
        yield Item(f"decode {requests} x {length}", partial(decode, place, requests, length), 3)
    for count, length in prefills:
        name = f"prefill {count}" if count == length else f"prefill {count} of {length}"
        yield Item(name, partial(prefill, place, count, length), 3)
    for name in TOY_DRAWS if place.is_toy else DRAWS:
        given = DRAWS[name]
        yield Item(f"sample {name}", partial(sample, place, *given), 2)
    for num_tokens in (4,) if place.is_toy else (8192, 64):
        for kernel in (norm, activation, rotary, store):
            yield Item(f"{kernel.__name__} {num_tokens}", partial(kernel, place, num_tokens), 2)


def conclude(found: dict[str, Figures]) -> Figures:
    """Nothing beyond the items."""
    return {"complete": all("took_s" in figures for figures in found.values())}


def caches(place: Place, lengths: list[int]) -> list[Paged]:
    """As many as are cold."""
    kv_heads = 1 if place.is_toy else KV_HEADS
    sizes = {"kv_heads": kv_heads, "head_dim": HEAD_DIM, "dtype": place.dtype}
    first = scattered(place, lengths, **sizes)
    count = 1 if place.is_toy else max(2, int(COLD_BYTES / first.num_bytes) + 1)
    return [first, *(scattered(place, lengths, **sizes) for _ in range(count - 1))]


def decode(place: Place, requests: int, length: int) -> Figures:
    """Bytes of keys and values a second, for one query a request; all splits and their merge."""
    found = caches(place, [length] * requests)
    kv_heads = found[0].keys.shape[2]
    heads = kv_heads * GROUP
    query = noise(place, requests, heads, HEAD_DIM, dtype=place.dtype)
    out = torch.empty_like(query)
    splits = choose_num_splits(requests, kv_heads, place.num_processors)
    config = lookup(current_arch(place.device), HEAD_DIM, GROUP, place.dtype, "decode")
    workspace = make_workspace(requests, heads, HEAD_DIM, splits, place.device)
    calls = [
        partial(
            split_decode,
            query,
            cache.keys,
            cache.values,
            out,
            **cache.given(),
            scale=HEAD_DIM**-0.5,
            num_splits=splits,
            workspace=workspace,
            config=config,
        )
        for cache in found
    ]
    seconds = place.seconds_a_call(calls)
    return {"splits": splits, **_rate(found[0].num_bytes, seconds)}


def prefill(place: Place, count: int, length: int) -> Figures:
    """Operations a second of one request's last `count` queries over its `length` keys."""
    found = caches(place, [length])
    kv_heads = found[0].keys.shape[2]
    query = noise(place, count, kv_heads * GROUP, HEAD_DIM, dtype=place.dtype)
    out = torch.empty_like(query)
    starts = torch.tensor([0, count], dtype=torch.int32, device=place.device)
    config = lookup(current_arch(place.device), HEAD_DIM, GROUP, place.dtype, "prefill")
    calls = [
        partial(
            paged_attention,
            query,
            cache.keys,
            cache.values,
            out,
            starts=starts,
            **cache.given(),
            scale=HEAD_DIM**-0.5,
            config=config,
        )
        for cache in found
    ]
    seconds = place.seconds_a_call(calls)
    pairs = count * (length - count) + count * (count + 1) / 2
    operations = 4 * pairs * kv_heads * GROUP * HEAD_DIM
    return {"us": round(seconds * 1e6, 2), "tflops": round(operations / seconds / 1e12, 4)}


def sample(place: Place, temperature: float, top_k: int, top_p: float) -> Figures:
    """Microseconds for a token of each row."""
    rows, size = sizes_of(place)
    full = partial(torch.full, (rows,), device=place.device)
    given = (
        *(full(temperature), full(top_k, dtype=torch.int32), full(top_p), full(0.0)),
        *(torch.arange(rows, device=place.device) for _ in range(2)),
    )
    tokens = full(0, dtype=torch.int32)
    calls = [
        partial(
            sample_tokens, noise(place, rows, size, dtype=place.dtype, scale=3.0), *given, tokens
        )
        for _ in range(_turns(place, rows * size * place.dtype.itemsize))
    ]
    seconds = place.seconds_a_call(calls)
    return {"rows": rows, "vocabulary": size, "us": round(seconds * 1e6, 2)}


def norm(place: Place, num_tokens: int) -> Figures:
    """The norm with the sum before it: two readings and two writings."""
    weight = noise(place, HIDDEN, dtype=place.dtype)

    def make() -> tuple[Callable[[], object], int]:
        x, residual = (noise(place, num_tokens, HIDDEN, dtype=place.dtype) for _ in range(2))
        out = torch.empty_like(x)
        return partial(rms_norm, x, weight, 1e-5, residual=residual, out=out), 4 * x.nbytes

    return _streamed(place, make)


def activation(place: Place, num_tokens: int) -> Figures:
    """The gated activation: two readings and a writing."""

    def make() -> tuple[Callable[[], object], int]:
        both = noise(place, num_tokens, 2 * GATED, dtype=place.dtype)
        out = noise(place, num_tokens, GATED, dtype=place.dtype)
        return partial(silu_mul, both, out), both.nbytes + out.nbytes

    return _streamed(place, make)


def rotary(place: Place, num_tokens: int) -> Figures:
    """Queries and keys turned, keys and values stored: everything read and written once."""

    def make() -> tuple[Callable[[], object], int]:
        query, key, value, keys, values, slots = _new_tokens(place, num_tokens)
        cos, sin = (noise(place, num_tokens, HEAD_DIM, dtype=place.dtype) for _ in range(2))
        turned = torch.empty_like(query)
        given = query, key, value, cos, sin, turned, keys, values, slots
        size = 2 * (query.nbytes + key.nbytes + value.nbytes) + cos.nbytes + sin.nbytes
        return partial(rotate_and_store, *given), size

    return _streamed(place, make)


def store(place: Place, num_tokens: int) -> Figures:
    """Keys and values stored: everything read and written once."""

    def make() -> tuple[Callable[[], object], int]:
        _, key, value, keys, values, slots = _new_tokens(place, num_tokens)
        size = 2 * (key.nbytes + value.nbytes)
        return partial(store_kv, key, value, keys, values, slots), size

    return _streamed(place, make)


def _new_tokens(place: Place, num_tokens: int) -> tuple[torch.Tensor, ...]:
    """Query, key and value of one fused projection, caches, slots in no order."""
    heads = GROUP * KV_HEADS
    joined = noise(place, num_tokens, heads + 2 * KV_HEADS, HEAD_DIM, dtype=place.dtype)
    parts = joined.split([heads, KV_HEADS, KV_HEADS], dim=1)
    blocks = -(-num_tokens // BLOCK_SIZE) + 1
    caches_ = (
        torch.empty(blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM, dtype=place.dtype, device=place.device)
        for _ in range(2)
    )
    slots = torch.randperm(blocks * BLOCK_SIZE)[:num_tokens].int().to(place.device)
    return *parts, *caches_, slots


def _streamed(place: Place, make: Callable[[], tuple[Callable[[], object], int]]) -> Figures:
    """The rate of a call that `make` gives with the bytes it moves."""
    call, num_bytes = make()
    calls = [call, *(make()[0] for _ in range(_turns(place, num_bytes) - 1))]
    return _rate(num_bytes, place.seconds_a_call(calls))


def _turns(place: Place, num_bytes: int) -> int:
    """Sets of data that are cold together; few bytes are measured warm, or launches would count."""
    return 1 if place.is_toy else min(16, int(COLD_BYTES / num_bytes) + 1)


def _rate(num_bytes: int, seconds: float) -> Figures:
    rate = num_bytes / seconds / 1e12
    return {
        "us": round(seconds * 1e6, 2),
        "tb_s": round(rate, 6),
        "data_sheet_share": round(rate / DATA_SHEET_TB_S, 6),
    }
