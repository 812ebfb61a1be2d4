"""Route a transformers causal LM's attention through a paged cache, or say why that cannot be.

Architectures whose attention cannot be routed, or would silently go wrong, are refused with a
reason; what is accepted is compared with the model's own eager attention on a short prompt.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import torch
from attrs import define, frozen

from framework import ModelError, SamplingParams
from runners.common.batch import FlatBatch, flatten
from runners.common.state import RequestState, ScheduledRow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from transformers import PreTrainedModel

IMPLEMENTATION = "headway_paged"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
KNOWN_LAYERS = {"full_attention", "sliding_attention"}
BATCH_WIDE_ROPE = {"dynamic", "longrope"}
AGREEMENT = {torch.float32: 2e-3, torch.bfloat16: 1e-1, torch.float16: 5e-2}
CHECK_BLOCK_SIZE = 4
CHECK_BLOCKS = 8
CHECK_TOKENS = 13
CHECK_SPLIT = 8


@frozen(eq=False)
class Options:
    """What a layer asks for besides scaled dot products: scale, window, soft cap, sinks."""

    scaling: float | None
    window: int | None
    softcap: float | None
    sinks: torch.Tensor | None

    @property
    def is_plain(self) -> bool:
        """Whether torch's fused attention can do it."""
        return self.softcap is None and self.sinks is None


class PagedAttention(Protocol):
    """A paged cache with attention over it, for one flat batch after another."""

    num_calls: int

    def begin(self, batch: FlatBatch) -> None:
        """What follows is the forward pass of this batch."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: Options,
    ) -> torch.Tensor:
        """Write the step's keys and values, then attend.

        Args:
            layer: its index.
            query: [T, heads, head_dim]. key, value: [T, kv_heads, head_dim of each].
            options: scaling, window, soft cap, sinks.

        Returns:
            [T, heads, head_dim of values].
        """


def read_config(directory: Path) -> dict[str, Any]:
    """The model's config.json.

    Raises:
        ModelError: the directory is not a model directory.
    """
    if not directory.is_dir():
        raise ModelError(f"model {str(directory)!r} is not a directory")
    path = directory / "config.json"
    if not path.is_file():
        raise ModelError(f"{str(directory)!r} is not a model directory: it has no config.json")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ModelError(f"{str(path)!r} is not JSON: {error}") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise ModelError(f"{str(path)!r} names no model_type")
    if not any(directory.glob("*.safetensors")) and not any(directory.glob("*.bin")):
        raise ModelError(f"{str(directory)!r} holds no weights (*.safetensors or *.bin)")
    return config


def read_model(directory: Path, dtype: str, device: str = "cpu") -> PreTrainedModel:
    """Weights of a directory in a model whose attention is routed; not accepted yet.

    Args:
        directory: a local Hugging Face model directory.
        dtype: "float32", "bfloat16" or "float16".
        device: a torch device.

    Raises:
        ModelError: no model directory, an unknown dtype, or weights that cannot be read.
    """
    if dtype not in DTYPES:
        raise ModelError(f"dtype: got {dtype!r}, allowed: {', '.join(DTYPES)}")
    kind = read_config(directory)["model_type"]
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    register()
    found: Any
    try:
        found = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=DTYPES[dtype],
            attn_implementation=IMPLEMENTATION,
            output_loading_info=True,
        )
    except Exception as error:  # whatever transformers and its readers raise
        if isinstance(error, KeyError) and IMPLEMENTATION in error.args:
            raise _not_routed(kind) from error
        raise ModelError(f"model {str(directory)!r} cannot be loaded: {error}") from error
    model, loaded = found
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise ModelError(
            f"model {str(directory)!r} cannot be loaded: {len(missing)} of its tensors are in no "
            f"weight file, the first is {missing[0]!r}"
        )
    routed: PreTrainedModel = model.to(device)
    return routed


def register() -> None:
    """Make IMPLEMENTATION known to transformers, without a mask function: no mask is built."""
    from transformers import AttentionInterface  # noqa: PLC0415

    AttentionInterface.register(IMPLEMENTATION, _routed)


def accept(
    model: PreTrainedModel,
    speed_up: Callable[[PreTrainedModel], object],
    make_cache: Callable[[int, int], PagedAttention],
) -> PreTrainedModel:
    """Check an instance whose attention is IMPLEMENTATION and make it ready to run.

    Args:
        model: its attention is IMPLEMENTATION.
        speed_up: replaces modules in place.
        make_cache: (num_blocks, block_size) -> an empty cache for the check.

    Raises:
        ModelError: its attention cannot be routed, or differs from its own eager attention.
    """
    model.train(False).requires_grad_(False)
    refuse_unsafe(model)
    tokens = _check_tokens(model)
    expected = _eager_logits(model, tokens)
    speed_up(model)
    _compare(model, tokens, make_cache(CHECK_BLOCKS, CHECK_BLOCK_SIZE), expected)
    return model


def _not_routed(kind: str) -> ModelError:
    return ModelError(
        f"architecture {kind!r} cannot run: its attention does not go through transformers' "
        "AttentionInterface, so it cannot read a paged cache"
    )


def refuse_unsafe(model: PreTrainedModel) -> None:
    """Raise ModelError for architectures that paged attention cannot serve."""
    config = model.config.get_text_config()
    kind = model.config.model_type
    if not getattr(model, "_supports_attention_backend", False):
        raise _not_routed(kind)
    other = set(getattr(config, "layer_types", None) or ()) - KNOWN_LAYERS
    if other:
        raise ModelError(
            f"architecture {kind!r} cannot run: it has layers of kind "
            f"{', '.join(sorted(other))}; allowed: {', '.join(sorted(KNOWN_LAYERS))}"
        )
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kinds = {
        str(part.get("rope_type", part.get("type")))
        for part in (rope, *rope.values())
        if isinstance(part, dict)
    }
    if kinds & BATCH_WIDE_ROPE:
        raise ModelError(
            f"architecture {kind!r} cannot run: its rotary embedding "
            f"({', '.join(sorted(kinds & BATCH_WIDE_ROPE))}) depends on the longest request of a "
            "batch, so one request would change the others"
        )


@define(eq=False)
class CachePlace:
    """Where the attention modules of one model find the cache of the step that runs."""

    cache: PagedAttention


def attach(model: PreTrainedModel, cache: PagedAttention) -> None:
    """Let the model's attention use this cache from now on."""
    place: Any = getattr(model, "headway_place", None)
    if place is not None:
        place.cache = cache
        return
    place = CachePlace(cache)
    for module in model.modules():
        if module is model or hasattr(module, "layer_idx"):
            module.headway_place = place


def _routed(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' side: query [1, heads, T, D] in, [1, T, heads, D] out."""
    if attention_mask is not None or query.shape[0] != 1 or given.get("dropout"):
        raise ModelError("paged attention was called with a mask, a batch or dropout")
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    options = Options(
        given.get("scaling"), given.get("sliding_window"), given.get("softcap"), given.get("s_aux")
    )
    out = module.headway_place.cache.attend(module.layer_idx, q, k, v, options)
    return out.unsqueeze(0), None


def _check_tokens(model: PreTrainedModel) -> list[int]:
    vocabulary = model.config.get_text_config().vocab_size
    return [(index * 7919 + 11) % vocabulary for index in range(CHECK_TOKENS)]


def check_batch(model: PreTrainedModel, start: int = 0, end: int = CHECK_SPLIT) -> FlatBatch:
    """Tokens of a short prompt, in scattered blocks of a cache made for the check."""
    tokens = _check_tokens(model)
    blocks = list(range(-(-CHECK_TOKENS // CHECK_BLOCK_SIZE), 0, -1))
    state = RequestState("check", tokens, len(tokens), blocks, SamplingParams(), 0, 0)
    return flatten([ScheduledRow(state, tokens[start:end], start, 0, True)], CHECK_BLOCK_SIZE)


def forward(model: PreTrainedModel, batch: FlatBatch) -> torch.Tensor:
    """[T, V] logits in fp32 of a batch that the attached cache has begun."""
    ids, positions = (
        torch.from_numpy(array)[None].to(model.device)
        for array in (batch.input_ids, batch.positions)
    )
    logits: torch.Tensor = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    return logits[0].float()


@torch.inference_mode()
def _eager_logits(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """[T, V] by the model's own modules and attention."""
    model.set_attn_implementation("eager")
    try:
        ids = torch.tensor([tokens], device=model.device)
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
        return logits[0].float()
    finally:
        model.set_attn_implementation(IMPLEMENTATION)


@torch.inference_mode()
def _compare(
    model: PreTrainedModel, tokens: list[int], cache: PagedAttention, expected: torch.Tensor
) -> None:
    """The paged path in two steps against eager in one, on one short prompt."""
    attach(model, cache)
    parts = []
    for start, end in ((0, CHECK_SPLIT), (CHECK_SPLIT, len(tokens))):
        batch = check_batch(model, start, end)
        cache.begin(batch)
        parts.append(forward(model, batch))
    layers = model.config.get_text_config().num_hidden_layers
    kind = model.config.model_type
    if cache.num_calls != 2 * layers:
        raise ModelError(
            f"architecture {kind!r} cannot run: {cache.num_calls} attention calls reached the "
            f"paged cache, {2 * layers} were expected"
        )
    difference = float((torch.cat(parts) - expected).abs().max())
    scale = max(1.0, float(expected.abs().max()))
    if not difference <= AGREEMENT[model.dtype] * scale:
        raise ModelError(
            f"architecture {kind!r} cannot run: with paged attention its logits differ from its "
            f"own by {difference:.3g} (of {scale:.3g})"
        )
