"""Launches of the attention kernels, with tensors of a real model's shapes that have no memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from attrs import frozen

from runners.triton.kernels.paged_attention import paged_attention
from runners.triton.kernels.split_decode import make_workspace, split_decode

if TYPE_CHECKING:
    from runners.triton.configs import AttentionConfig, Situation

TOKENS = 2048
REQUESTS = 64
KV_HEADS = 8
BLOCK_SIZE = 16
LARGE_CACHE = 100_000
"""Blocks that fill more than 2 GiB, where AMD's 32-bit buffer addresses do not reach."""
SMALL_CACHE = 1_000


@frozen
class Features:
    """What an attention layer has, besides what its situation says."""

    window: int | None = None
    softcap: float | None = None
    has_sinks: bool = False
    num_blocks: int = LARGE_CACHE
    num_splits: int = 8


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor that is only a shape."""
    return torch.empty(shape, dtype=dtype, device="meta")


def integers(*shape: int) -> torch.Tensor:
    """Lengths, ids and the like."""
    return empty(*shape, dtype=torch.int32)


def launch_prefill(situation: Situation, config: AttentionConfig, features: Features) -> None:
    """`paged_attention` of a query that is a part of a fused projection."""
    dtype = getattr(torch, situation.dtype)
    heads, head_dim = KV_HEADS * situation.group, situation.head_dim
    fused = empty(TOKENS, heads + 2 * KV_HEADS, head_dim, dtype=dtype)
    keys = empty(features.num_blocks, BLOCK_SIZE, KV_HEADS, head_dim, dtype=dtype)
    paged_attention(
        fused[:, :heads],
        keys,
        empty(*keys.shape, dtype=dtype),
        empty(TOKENS, heads, head_dim, dtype=dtype),
        starts=integers(REQUESTS + 1),
        lengths=integers(REQUESTS),
        tables=integers(REQUESTS, 1024),
        rows=integers(REQUESTS),
        scale=head_dim**-0.5,
        window=features.window,
        softcap=features.softcap,
        sinks=empty(heads, dtype=dtype) if features.has_sinks else None,
        config=config,
    )


def launch_decode(situation: Situation, config: AttentionConfig, features: Features) -> None:
    """`split_decode`, and the merge where there is more than one split."""
    dtype = getattr(torch, situation.dtype)
    heads, head_dim = KV_HEADS * situation.group, situation.head_dim
    fused = empty(REQUESTS, heads + 2 * KV_HEADS, head_dim, dtype=dtype)
    keys = empty(features.num_blocks, BLOCK_SIZE, KV_HEADS, head_dim, dtype=dtype)
    split_decode(
        fused[:, :heads],
        keys,
        empty(*keys.shape, dtype=dtype),
        empty(REQUESTS, heads, head_dim, dtype=dtype),
        lengths=integers(REQUESTS),
        tables=integers(REQUESTS, 1024),
        rows=integers(REQUESTS),
        scale=head_dim**-0.5,
        window=features.window,
        softcap=features.softcap,
        sinks=empty(heads, dtype=dtype) if features.has_sinks else None,
        num_splits=features.num_splits,
        workspace=make_workspace(REQUESTS, heads, head_dim, features.num_splits, "meta"),
        config=config,
    )
