"""Load a model for the Triton runner: routed, fused where fused modules agree, checked."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import torch

from framework import ModelError
from runners.common import routing
from runners.triton.cache import PagedCache
from runners.triton.fusing import fuse

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

log = logging.getLogger("headway.models")


def load_model(directory: Path, dtype: str, device: str) -> PreTrainedModel:
    """Load, refuse or accept, and fuse.

    Raises:
        ModelError: no model directory, an unknown dtype, no such device, or an architecture that
            cannot run.
    """
    check_device(device, dtype)
    return accept(routing.read_model(directory, dtype, device))


def check_device(device: str, dtype: str) -> None:
    """Raise ModelError if the kernels cannot run there."""
    kind = device.partition(":")[0]
    if kind not in ("cuda", "cpu"):
        raise ModelError(f"device: got {device!r}, allowed: 'cuda', 'cuda:N' or 'cpu'")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device: got {device!r}, but torch finds no GPU here")
    if kind == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ModelError(
            "device: got 'cpu', where kernels run only in Triton's interpreter, for tests: set "
            "TRITON_INTERPRET=1 before Python starts, or take the runner 'torch'"
        )
    if kind == "cpu" and dtype == "bfloat16":
        raise ModelError(
            "dtype: got 'bfloat16' on 'cpu', but Triton's interpreter multiplies its bit patterns; "
            "allowed: 'float32', 'float16'"
        )


def accept(model: PreTrainedModel) -> PreTrainedModel:
    """Make an instance whose attention is `routing.IMPLEMENTATION` ready to run.

    Raises:
        ModelError: its attention cannot be routed, or differs from its own eager attention.
    """

    def make_cache(num_blocks: int, block_size: int) -> PagedCache:
        return PagedCache(num_blocks, block_size, model.dtype, torch.device(model.device))

    def speed_up(model: PreTrainedModel) -> None:
        cache = make_cache(routing.CHECK_BLOCKS, routing.CHECK_BLOCK_SIZE)
        batch = routing.check_batch(model)
        cache.begin(batch)
        fused = fuse(model, cache, lambda: routing.forward(model, batch))
        log.info("fused modules: %s", fused)

    return routing.accept(model, speed_up, make_cache)
