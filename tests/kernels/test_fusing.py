"""Which modules are replaced by fused ones, and that what does not agree stays."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pytest
import torch

pytest.importorskip("transformers")

from runners.common import routing
from runners.triton.cache import PagedCache
from runners.triton.fusing import fuse
from tests.runners import tiny

NORMS, MLPS, ATTENTIONS, LAYERS = "FusedRMSNorm", "FusedMLP", "FusedAttention", "FusedLayer"


def fused(model: Any) -> dict[str, int]:
    """How many modules of each fused class the model has afterwards."""
    model.train(False)
    cache = PagedCache(routing.CHECK_BLOCKS, routing.CHECK_BLOCK_SIZE, model.dtype, model.device)
    batch = routing.check_batch(model)
    cache.begin(batch)
    return fuse(model, cache, lambda: routing.forward(model, batch))


@torch.inference_mode()
def logits(model: Any) -> torch.Tensor:
    """Of a short prompt, by the modules that the model has now."""
    cache = PagedCache(routing.CHECK_BLOCKS, routing.CHECK_BLOCK_SIZE, model.dtype, model.device)
    routing.attach(model, cache)
    batch = routing.check_batch(model)
    cache.begin(batch)
    return routing.forward(model, batch)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama", {NORMS: 5, MLPS: 2, ATTENTIONS: 2, LAYERS: 2}),
        ("qwen3", {NORMS: 9, MLPS: 2, ATTENTIONS: 2, LAYERS: 2}),
        ("gemma2", {NORMS: 9, MLPS: 2, ATTENTIONS: 2}),
        ("gemma3_text", {NORMS: 13, MLPS: 2, ATTENTIONS: 2}),
        ("gpt_oss", {NORMS: 5}),
    ],
)
def test_modules_of_a_kind_are_fused(kind: str, expected: dict[str, int], device: str) -> None:
    model = tiny.build(kind).to(device)
    assert fused(model) == expected
    names = [type(module).__name__ for module in model.modules()]
    assert {name: names.count(name) for name in expected} == expected


def test_biases_are_joined_like_weights(device: str) -> None:
    model = tiny.build("llama", attention_bias=True, mlp_bias=True).to(device)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    before = logits(model)
    assert fused(model) == {NORMS: 5, MLPS: 2, ATTENTIONS: 2, LAYERS: 2}
    torch.testing.assert_close(logits(model), before, rtol=1e-3, atol=1e-3)


def test_modules_that_do_something_else_stay(device: str) -> None:
    model = tiny.build("llama").to(device)
    layer = model.model.layers[0]

    class OddMLP(type(layer.mlp)):
        """Looks like one and is not."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 1.01

    class OddRMSNorm(type(layer.input_layernorm)):
        """Nor is this."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 0.01

    class LlamaAttention(type(layer.self_attn)):
        """It has even the name."""

        def forward(self, *args: Any, **given: Any) -> Any:
            out, weights = super().forward(*args, **given)
            return out * 1.01, weights

    layer.mlp.__class__ = OddMLP
    layer.input_layernorm.__class__ = OddRMSNorm
    layer.self_attn.__class__ = LlamaAttention
    before = logits(model)
    assert fused(model) == {NORMS: 4, MLPS: 1, ATTENTIONS: 1, LAYERS: 2}
    layer = model.model.layers[0]
    kept = [type(part) for part in (layer.mlp, layer.input_layernorm, layer.self_attn)]
    assert kept == [OddMLP, OddRMSNorm, LlamaAttention]
    torch.testing.assert_close(logits(model), before, rtol=1e-3, atol=1e-3)


def test_a_layer_that_does_something_else_stays(device: str) -> None:
    model = tiny.build("llama").to(device)

    class LlamaDecoderLayer(type(model.model.layers[1])):
        """It has the name and not the sums."""

        def forward(self, hidden_states: torch.Tensor, **given: Any) -> torch.Tensor:
            return super().forward(hidden_states, **given) * 1.01

    model.model.layers[1].__class__ = LlamaDecoderLayer
    assert fused(model)[LAYERS] == 1
    assert type(model.model.layers[1]) is LlamaDecoderLayer


def test_projections_of_which_some_have_a_bias_are_not_joined(device: str) -> None:
    model = tiny.build("llama").to(device)
    layer = model.model.layers[0]
    layer.self_attn.q_proj.bias = torch.nn.Parameter(torch.ones(64, device=device))
    layer.mlp.up_proj.bias = torch.nn.Parameter(torch.ones(96, device=device))
    assert fused(model) == {NORMS: 5, MLPS: 1, ATTENTIONS: 1, LAYERS: 2}


def test_what_is_replaced_is_let_go(device: str) -> None:
    """The weights that were joined would be there twice."""
    model = tiny.build("llama").to(device)
    old = [ref(layer.mlp.gate_proj.weight) for layer in model.model.layers]
    fused(model)
    assert [weight() for weight in old] == [None, None]
