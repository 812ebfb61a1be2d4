"""A latency model for a model that nobody profiled: its config.json and the GPU's data sheet.

What a GPU reaches of its peak bandwidth and arithmetic differs little between dense models and
GPUs: the efficiencies below were fitted to Vidur's public profiles (Agrawal et al., MLSys 2024;
MIT) of A100, H100 and A40; the overheads of a step are those of BLIS (Apache-2.0). Weights and KV
are taken to be 16 bits wide, on one GPU.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from framework.errors import ConfigError, bad_field, did_you_mean
from framework.latency.linear import LinearLatency

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = "data/gpus.json"
ATTENTION_READ, ATTENTION_ARITHMETIC = 0.82, 0.41
"""Shares of peak bandwidth in decodes and of peak arithmetic in prefills (FlashAttention-2)."""
TILE_KEYS = 1000
"""A query of a prefill costs as much as if it saw so many keys more: tiles are computed whole."""
LAYER_MS, STEP_MS, REQUEST_MS = 0.0321, 0.126, 0.0044
DECODE_LAYER_MS = 0.0134
USABLE, SPARE_BYTES = 0.9, 2e9
"""Memory a server takes, and what of it activations need."""
WIDTH = 2
NOT_DENSE = {
    "num_local_experts": "experts",
    "num_experts": "experts",
    "n_routed_experts": "experts",
    "kv_lora_rank": "latent attention",
    "quantization_config": "quantised weights",
}
UNGATED = {"gpt_neox", "phi", "starcoder2", "nemotron"}
"""Model types whose feed-forward has two matrices, not three."""


@frozen(kw_only=True)
class Gpu:
    """A GPU's data sheet.

    Attributes:
        name: in full.
        peak_tflops: dense, 16 bits. bandwidth_tb_s, memory_gb: of its memory, decimal.
        weights, arithmetic: shares of bandwidth and peak that a model's linear layers reach;
            measured where the GPU was profiled, else a mean.
    """

    name: str
    peak_tflops: float
    bandwidth_tb_s: float
    memory_gb: float
    weights: float = 0.95
    arithmetic: float = 0.67


@frozen(kw_only=True)
class _Shape:
    """What of a dense transformer costs time."""

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_matrices: int = field(default=3)

    @property
    def layer_parameters(self) -> int:
        """Of all layers, without embedding and head."""
        heads = 2 * self.num_attention_heads + 2 * self.num_key_value_heads
        attention = self.hidden_size * heads * self.head_dim
        feed_forward = self.num_matrices * self.hidden_size * self.intermediate_size
        return self.num_hidden_layers * (attention + feed_forward)

    @property
    def head_parameters(self) -> int:
        """Of the output head."""
        return self.vocab_size * self.hidden_size

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * WIDTH


def gpus() -> dict[str, Gpu]:
    """{name: data sheet} of the GPUs that Headway knows."""
    text = files("framework").joinpath(DATA).read_text(encoding="utf-8")
    return {name: Gpu(**fields) for name, fields in json.loads(text).items()}


def gpu_names() -> list[str]:
    """The GPUs that `from_model` takes by name."""
    return sorted(gpus())


def from_model(config: Mapping[str, Any], gpu: str | Gpu) -> LinearLatency:
    """A latency model from a dense model's config.json; an estimate, validated against nothing.

    Args:
        config: the contents of a Hugging Face config.json.
        gpu: a name of `gpu_names`, or a data sheet.

    Raises:
        ConfigError: a field is missing, the model is not dense or does not fit the GPU's memory,
            or there is no such GPU.
    """
    sheet = gpu if isinstance(gpu, Gpu) else _gpu(gpu)
    text = config.get("text_config")
    fields = text if isinstance(text, dict) else config
    shape = _shape(fields, {**config, **fields})
    bandwidth = sheet.bandwidth_tb_s * 1e9  # bytes a millisecond
    arithmetic = sheet.peak_tflops * 1e9  # operations a millisecond
    layers, head = shape.layer_parameters, shape.head_parameters
    num_layers = shape.num_hidden_layers
    width = shape.num_attention_heads * shape.head_dim
    pair_ms = 4 * width * num_layers / (ATTENTION_ARITHMETIC * arithmetic)
    tied = bool(config.get("tie_word_embeddings", fields.get("tie_word_embeddings", False)))
    held = WIDTH * (layers + head * (1 if tied else 2))
    name = config.get("_name_or_path") or config.get("model_type") or "a model"
    return LinearLatency(
        name=f"{name} at 16 bits on one {sheet.name}",
        base_ms=LAYER_MS * num_layers + STEP_MS,
        weights_ms=WIDTH * layers / (sheet.weights * bandwidth) + WIDTH * head / bandwidth,
        token_ms=2 * layers / (sheet.arithmetic * arithmetic),
        prefill_token_ms=TILE_KEYS * pair_ms,
        pair_ms=pair_ms,
        context_ms=shape.kv_bytes_per_token / (ATTENTION_READ * bandwidth),
        decode_ms=DECODE_LAYER_MS * num_layers,
        request_ms=REQUEST_MS,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        num_kv_tokens=_room(sheet, held, shape.kv_bytes_per_token),
        source="computed from config.json and the data sheet, with efficiencies fitted to Vidur's "
        "public profiles (MIT) and overheads from BLIS (Apache-2.0); not validated",
    )


def _gpu(name: str) -> Gpu:
    known = gpus()
    if name not in known:
        raise ConfigError(
            f"gpu: got {name!r}, allowed: {', '.join(sorted(known))}.{did_you_mean(name, known)}"
        )
    return known[name]


def _shape(fields: Mapping[str, Any], everything: Mapping[str, Any]) -> _Shape:
    for key, what in NOT_DENSE.items():
        if everything.get(key):
            raise bad_field(key, everything[key], f"no {what}: dense models of 16 bits alone")

    def read(name: str, default: int | None = None) -> int:
        value: Any = fields.get(name)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise bad_field(f"config.json: {name}", value, "an int of at least 1")
        return value

    heads, hidden = read("num_attention_heads"), read("hidden_size")
    return _Shape(
        num_hidden_layers=read("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=read("intermediate_size"),
        vocab_size=read("vocab_size"),
        num_attention_heads=heads,
        num_key_value_heads=read("num_key_value_heads", heads),
        head_dim=read("head_dim", hidden // heads),
        num_matrices=2 if fields.get("model_type") in UNGATED else 3,
    )


def _room(sheet: Gpu, held: int, kv_bytes_per_token: int) -> int:
    """Tokens of KV beside the weights."""
    free = USABLE * sheet.memory_gb * 1e9 - SPARE_BYTES - held
    if free < kv_bytes_per_token:
        raise bad_field("gpu", sheet.name, f"memory for {held / 1e9:.0f} GB of weights and KV")
    return int(free / kv_bytes_per_token)
