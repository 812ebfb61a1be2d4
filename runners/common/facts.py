"""What a front end asks about a loaded model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def vocab_size(model: PreTrainedModel) -> int:
    """Tokens the model knows."""
    return int(model.config.get_text_config().vocab_size)


def max_model_len(model: PreTrainedModel) -> int:
    """Positions the model was made for."""
    return int(model.config.get_text_config().max_position_embeddings)


def eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """End-of-sequence tokens, of the generation config if it names any."""
    eos = model.generation_config.eos_token_id
    if eos is None:
        eos = model.config.get_text_config().eos_token_id
    if eos is None:
        return ()
    return (eos,) if isinstance(eos, int) else tuple(eos)
