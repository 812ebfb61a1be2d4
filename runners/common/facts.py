"""What a front end asks about a loaded model, the same for every runner that has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ModelFacts:
    """Properties of a runner's `model`."""

    model: PreTrainedModel

    @property
    def vocab_size(self) -> int:
        """Tokens the model knows."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def max_model_len(self) -> int:
        """Positions the model was made for."""
        return int(self.model.config.get_text_config().max_position_embeddings)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """End-of-sequence tokens, of the generation config if it names any."""
        eos = self.model.generation_config.eos_token_id
        if eos is None:
            eos = self.model.config.get_text_config().eos_token_id
        if eos is None:
            return ()
        return (eos,) if isinstance(eos, int) else tuple(eos)

    @property
    def dtype(self) -> str:
        """What it computes in."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        """What it computes on."""
        return str(self.model.device)
