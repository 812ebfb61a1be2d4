"""Load a model for the torch runner: routed, faster linear layers, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runners.common import routing
from runners.torch_paged.attention import PagedCache
from runners.torch_paged.linear import speed_up

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel


def load_model(directory: Path, dtype: str) -> PreTrainedModel:
    """Load, refuse or accept, and replace slow modules.

    Raises:
        ModelError: no model directory, an unknown dtype, or an architecture that cannot run.
    """
    return accept(routing.read_model(directory, dtype))


def accept(model: PreTrainedModel) -> PreTrainedModel:
    """Make an instance whose attention is `routing.IMPLEMENTATION` ready to run.

    Raises:
        ModelError: its attention cannot be routed, or differs from its own eager attention.
    """
    return routing.accept(
        model, speed_up, lambda blocks, size: PagedCache(blocks, size, model.dtype)
    )
