"""Models of the shapes of well known ones, with random weights made on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field

from runners.common.routing import IMPLEMENTATION, register
from runners.triton.loading import accept

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from benchmarks.gpu_check.place import Place

LLAMA: dict[str, Any] = {
    "vocab_size": 128_256,
    "num_key_value_heads": 8,
    "num_attention_heads": 32,
    "max_position_embeddings": 131_072,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
    "rms_norm_eps": 1e-5,
}
SIZES: dict[str, dict[str, Any]] = {
    "1B": {  # Llama-3.2-1B
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "8B": {  # Llama-3.1-8B
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
    "toy": {
        "vocab_size": 97,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
    },
}
NO_SPECIAL_TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))


def build(place: Place, size: str, implementation: str = IMPLEMENTATION) -> PreTrainedModel:
    """A model of one of SIZES; two of a size have the same weights.

    Args:
        implementation: of its attention, by transformers' name.
    """
    from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: PLC0415

    register()
    config = LlamaConfig(**{**LLAMA, **SIZES[size], **NO_SPECIAL_TOKENS})
    torch.manual_seed(3)
    with place.device:
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, attn_implementation=implementation, dtype=place.dtype
        )
    return model.to(place.device).train(False).requires_grad_(False)


def weight_bytes(model: PreTrainedModel) -> int:
    """Of weights that a step reads: all but an embedding table that is only looked up in."""
    weights = {weight.data_ptr(): weight.nbytes for weight in model.parameters()}
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if table is not head:
        del weights[table.data_ptr()]
    return sum(weights.values())


def kv_bytes(model: PreTrainedModel) -> int:
    """Of one token's keys and values in all layers."""
    config = model.config
    heads = config.num_key_value_heads * config.head_dim
    return int(2 * config.num_hidden_layers * heads * model.dtype.itemsize)


@define(eq=False)
class Models:
    """One model at a time, made when it is asked for."""

    place: Place
    _found: dict[str, PreTrainedModel] = field(factory=dict, init=False)

    def __call__(self, size: str) -> PreTrainedModel:
        """Accepted, with fused modules; a model of another size is let go."""
        if size not in self._found:
            self._found.clear()
            self.place.empty()
            self._found[size] = accept(build(self.place, size))
        return self._found[size]
