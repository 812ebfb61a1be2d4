"""Launches of the kernels that have no rows in the table, with the shapes of Llama-3.1-8B.

Each stands for the launches of a step; what a launcher chooses by a size is chosen as there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from runners.triton.aot.attention import (
    BLOCK_SIZE,
    KV_HEADS,
    LARGE_CACHE,
    REQUESTS,
    TOKENS,
    empty,
    integers,
)
from runners.triton.kernels.copy_blocks import copy_blocks
from runners.triton.kernels.rms_norm import rms_norm
from runners.triton.kernels.rotary import rotate_and_store
from runners.triton.kernels.silu_mul import silu_mul
from runners.triton.kernels.store_kv import store_kv
from runners.triton.kernels.zero_blocks import zero_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

HEADS = 32
HEAD_DIM = 128
WIDTH = HEADS * HEAD_DIM
FEED_FORWARD = 14336


def projected(head_dim: int = HEAD_DIM) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key and value as the parts of one projection."""
    fused = empty(TOKENS, HEADS + 2 * KV_HEADS, head_dim)
    return fused[:, :HEADS], fused[:, HEADS:-KV_HEADS], fused[:, -KV_HEADS:]


def cache(head_dim: int = HEAD_DIM) -> torch.Tensor:
    """Keys or values of a layer."""
    return empty(LARGE_CACHE, BLOCK_SIZE, KV_HEADS, head_dim)


def launch_store_kv() -> None:
    """Of every token of a step."""
    _, key, value = projected()
    store_kv(key, value, cache(), cache(), integers(TOKENS))


def launch_rotate_and_store(head_dim: int) -> None:
    """Into a contiguous query."""
    query, key, value = projected(head_dim)
    cos, rotated = empty(TOKENS, head_dim), empty(*query.shape)
    keys, values = cache(head_dim), cache(head_dim)
    rotate_and_store(query, key, value, cos, cos, rotated, keys, values, integers(TOKENS))


def launch_rms_norm(width: int, offset: float) -> None:
    """With a residual."""
    x = empty(TOKENS, width)
    rms_norm(x, empty(width), 1e-5, residual=x, offset=offset)


def launch_head_norm() -> None:
    """Of each head of a query, as in Qwen3."""
    query, _, _ = projected()
    rms_norm(query, empty(HEAD_DIM), 1e-5)


def launch_silu_mul(activation: str) -> None:
    """Of a fused projection."""
    silu_mul(empty(TOKENS, 2 * FEED_FORWARD), activation=activation)


def launch_zero_blocks() -> None:
    """In keys and values."""
    zero_blocks([cache(), cache()], integers(REQUESTS))


def launch_copy_blocks() -> None:
    """From one cache to another."""
    copy_blocks(cache(), cache(), integers(REQUESTS), integers(REQUESTS))


LAUNCHES: list[tuple[str, str, Callable[[], None]]] = [
    ("store_kv", "", launch_store_kv),
    ("rotate_and_store", "", partial(launch_rotate_and_store, HEAD_DIM)),
    ("rotate_and_store", "head_dim 80", partial(launch_rotate_and_store, 80)),
    ("rotate_and_store", "head_dim 256", partial(launch_rotate_and_store, 256)),
    ("rms_norm", "", partial(launch_rms_norm, WIDTH, 0.0)),
    ("rms_norm", "width 16384, offset", partial(launch_rms_norm, 16384, 1.0)),
    ("rms_norm", "of heads", launch_head_norm),
    ("silu_mul", "", partial(launch_silu_mul, "silu")),
    ("silu_mul", "gelu", partial(launch_silu_mul, "gelu_tanh")),
    ("zero_blocks", "", launch_zero_blocks),
    ("copy_blocks", "", launch_copy_blocks),
]
"""(launcher, what sets the launch apart from others of it, the launch)."""
