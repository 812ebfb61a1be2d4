"""Cases of the attention kernels: heads, groups, windows, soft caps, sinks, splits, padding."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch
from attrs import frozen

from benchmarks.gpu_check.caches import Paged, as_floats, noise, scattered
from benchmarks.gpu_check.cases import Case, gap
from runners.triton.configs import current_arch, lookup
from runners.triton.kernels.paged_attention import attention_reference, paged_attention
from runners.triton.kernels.split_decode import make_workspace, split_decode

if TYPE_CHECKING:
    from typing import Any

    from benchmarks.gpu_check.place import Place

LENGTHS = [1, 16, 17, 0, 300, 2049, 1000, 0]
CHUNKS = [(1, 1), (16, 16), (7, 300), (1, 0), (130, 1000), (1, 2049), (65, 65), (4, 513)]
TOY_LENGTHS = [1, 70, 0]
TOY_CHUNKS = [(1, 70), (9, 20), (1, 0)]


@frozen
class Shape:
    """Heads, and what a layer asks for besides."""

    head_dim: int
    kv_heads: int
    group: int
    window: int | None = None
    softcap: float | None = None
    has_sinks: bool = False

    def given(self, place: Place, cache: Paged) -> dict[str, Any]:
        """For a kernel and its reference."""
        heads = self.kv_heads * self.group
        sinks = noise(place, heads, dtype=torch.float32) if self.has_sinks else None
        return {
            **cache.given(),
            "scale": self.head_dim**-0.5,
            "window": self.window,
            "softcap": self.softcap,
            "sinks": sinks,
        }

    @property
    def words(self) -> str:
        """For the results."""
        parts = [f"head_dim {self.head_dim}", f"{self.kv_heads * self.group}/{self.kv_heads} heads"]
        parts += [f"window {self.window}"] if self.window else []
        parts += [f"softcap {self.softcap:g}"] if self.softcap else []
        parts += ["sinks"] if self.has_sinks else []
        return ", ".join(parts)


def decode(shape: Shape, num_splits: int, place: Place, dtype: torch.dtype) -> float:
    """`split_decode` of requests of all lengths, padded ones among them."""
    lengths = TOY_LENGTHS if place.is_toy else LENGTHS
    cache = scattered(
        place,
        lengths,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        dtype=dtype,
        poisoned=True,
    )
    heads = shape.kv_heads * shape.group
    query = noise(place, len(lengths), heads, shape.head_dim, dtype=dtype)
    out = torch.full_like(query, math.nan)
    given = shape.given(place, cache)
    split_decode(
        query,
        cache.keys,
        cache.values,
        out,
        **given,
        num_splits=num_splits,
        workspace=make_workspace(len(lengths), heads, shape.head_dim, num_splits, place.device),
        config=lookup(current_arch(place.device), shape.head_dim, shape.group, dtype, "decode"),
    )
    starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=place.device)
    return gap((out, _expected(query, cache, starts, given)))


def mixed(shape: Shape, phase: str, place: Place, dtype: torch.dtype) -> float:
    """`paged_attention` of chunks, decodes and padding in one batch."""
    chunks = TOY_CHUNKS if place.is_toy else CHUNKS
    cache = scattered(
        place,
        [length for _, length in chunks],
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        dtype=dtype,
        poisoned=True,
    )
    counts = torch.tensor([0, *(count for count, _ in chunks)])
    starts = counts.cumsum(0).int().to(place.device)
    heads = shape.kv_heads * shape.group
    query = noise(place, int(counts.sum()), heads, shape.head_dim, dtype=dtype)
    out = torch.full_like(query, math.nan)
    given = shape.given(place, cache)
    paged_attention(
        query,
        cache.keys,
        cache.values,
        out,
        starts=starts,
        **given,
        config=lookup(current_arch(place.device), shape.head_dim, shape.group, dtype, phase),
    )
    return gap((out, _expected(query, cache, starts, given)))


def _expected(
    query: torch.Tensor, cache: Paged, starts: torch.Tensor, given: dict[str, Any]
) -> torch.Tensor:
    return attention_reference(
        query.float(), cache.keys.float(), cache.values.float(), starts=starts, **as_floats(given)
    )


LLAMA_8B = Shape(128, 8, 4)
LLAMA_1B = Shape(64, 8, 4)
SHAPES = (
    LLAMA_8B,
    LLAMA_1B,
    Shape(64, 8, 8, window=128, has_sinks=True),
    Shape(256, 4, 2, window=500, softcap=50.0),
    Shape(256, 1, 4),
    Shape(128, 4, 8, window=33),
    Shape(128, 8, 1, softcap=20.0, has_sinks=True),
    Shape(80, 4, 3),
)
SPLITS = (1, 8, 4, 16, 64, 2, 1, 8)
TOY = (Shape(64, 1, 4), Shape(128, 1, 8, window=33, softcap=20.0, has_sinks=True))

ATTENTION = (
    *(
        Case(
            "split_decode",
            f"{shape.words}, {splits} splits",
            partial(decode, shape, splits),
            ulps=None,
            in_toy=False,
        )
        for shape, splits in zip(SHAPES, SPLITS, strict=True)
    ),
    *(
        Case("paged_attention", shape.words, partial(mixed, shape, "prefill"), None, in_toy=False)
        for shape in SHAPES
    ),
    Case(
        "paged_attention",
        f"{LLAMA_8B.words}, sizes of decode",
        partial(mixed, LLAMA_8B, "decode"),
        None,
        in_toy=False,
    ),
    *(
        Case("split_decode", f"{shape.words}, 2 splits", partial(decode, shape, 2), None)
        for shape in TOY
    ),
    *(
        Case("paged_attention", shape.words, partial(mixed, shape, "prefill"), None)
        for shape in TOY
    ),
)
