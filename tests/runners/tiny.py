"""Random models of a few thousand weights, one an architecture, and their own greedy tokens."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from runners.common.routing import IMPLEMENTATION, register  # noqa: E402
from runners.torch_paged.loading import accept  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

torch.set_num_threads(1)  # for models so small more threads only wait for each other

VOCABULARY = 97
WINDOW = 8
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,  # so that tokens differ from one position to the next
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
MIXED = ["sliding_attention", "full_attention"]
KINDS = ("llama", "qwen3", "gemma2", "gemma3_text", "gpt_oss")


def config(kind: str, **fields: Any) -> Any:
    """A configuration of SIZES with what is special about its kind."""
    special = {
        "gemma2": {"sliding_window": WINDOW, "query_pre_attn_scalar": 16},  # window, soft cap
        "gemma3_text": {
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 16,
            "layer_types": MIXED,
        },
        "gpt_oss": {  # window, sinks, experts
            "sliding_window": WINDOW,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    }
    return transformers.AutoConfig.for_model(kind, **{**SIZES, **special.get(kind, {}), **fields})


def build(kind: str, **fields: Any) -> Any:
    """A random model whose attention is routed to the paged cache; not accepted yet."""
    register()
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(
        config(kind, **fields), attn_implementation=IMPLEMENTATION, dtype=torch.float32
    )


@cache
def model(kind: str) -> Any:
    """An accepted one, shared by tests."""
    return accept(build(kind))


@cache
def original(kind: str) -> Any:
    """The same weights as transformers left them, with eager attention."""
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(
        config(kind), attn_implementation="eager", dtype=torch.float32
    ).train(False)


@torch.inference_mode()
def logits_of(kind: str, tokens: Sequence[int]) -> Any:
    """[len(tokens), V], by the original."""
    return original(kind)(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def greedy(kind: str, prompt: Sequence[int], count: int) -> list[int]:
    """`count` tokens after the prompt, by the original, each from the whole sequence."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_of(kind, tokens)[-1].argmax()))
    return tokens[len(prompt) :]
