"""Load a model for the Triton runner: routed, fused where fused modules agree, checked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from runners.common import routing
from runners.triton.cache import PagedCache
from runners.triton.devices import check_device, current
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

    with current(torch.device(model.device)):
        return routing.accept(model, speed_up, make_cache)
