"""Which modules of a model are replaced by fused ones, each checked on one input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field
from torch import nn

from runners.common.routing import attach
from runners.triton.kernels.paged_attention import attention_reference
from runners.triton.modules import (
    GATED,
    PROJECTED,
    FusedAttention,
    FusedLayer,
    FusedMLP,
    FusedRMSNorm,
    epsilon_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import PreTrainedModel

    from runners.common.routing import Options
    from runners.triton.cache import PagedCache

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2", "Gemma3")
ATTENTIONS = {f"{family}Attention" for family in FAMILIES}
LAYERS = {f"{family}DecoderLayer" for family in FAMILIES[:4]}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
ACTIVATIONS = ("silu", "gelu_tanh")
OFFSETS = (0.0, 1.0)


@define(eq=False)
class _Seen:
    """What one module was called with and what it gave."""

    args: tuple[Any, ...]
    given: dict[str, Any]
    result: torch.Tensor

    def is_matched_by(self, module: nn.Module) -> bool:
        """Whether the module gives the same; its input may be overwritten, so it gets a copy."""
        args, given = _copied(self.args), _copied(self.given)
        found = _first(module(*args, **given))
        scale = float(self.result.abs().max()) or 1.0
        difference = float((found - self.result).abs().max())
        return difference <= TOLERANCE[self.result.dtype] * scale


@define(eq=False)
class _Recorder:
    """Stands where a cache would, notes what each layer asks for, and attends without kernels."""

    options: dict[int, Options] = field(factory=dict)
    num_calls: int = 0

    def begin(self, batch: object) -> None:
        """There is one request, from its first token on."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: Options,
    ) -> torch.Tensor:
        self.options[layer] = options
        count, device = len(query), query.device
        return attention_reference(
            query,
            key[None],
            value[None],
            starts=torch.tensor([0, count], device=device),
            lengths=torch.tensor([count], device=device),
            tables=torch.zeros(1, 1, dtype=torch.int32, device=device),
            rows=torch.zeros(1, dtype=torch.int32, device=device),
            scale=query.shape[2] ** -0.5 if options.scaling is None else options.scaling,
            window=options.window,
            softcap=options.softcap,
            sinks=options.sinks,
        )


@torch.inference_mode()
def fuse(model: PreTrainedModel, cache: PagedCache, run: Callable[[], object]) -> dict[str, int]:
    """Replace modules in place.

    Args:
        model: its attention is routed.
        cache: what `run` needs has begun there.
        run: one forward pass of the model, over the first tokens of one request.

    Returns:
        How many modules of each fused class there are now.
    """
    recorder = _Recorder()
    attach(model, recorder)
    seen = _watch(model, run)
    attach(model, cache)
    counts: dict[str, int] = {}
    for name in reversed(list(seen)):
        call = seen.pop(name)
        for fused in _candidates(model.get_submodule(name), recorder.options):
            if call.is_matched_by(fused):
                model.set_submodule(name, fused)
                kind = type(fused).__name__
                counts[kind] = counts.get(kind, 0) + 1
                break
    return counts


def _watch(model: nn.Module, run: Callable[[], object]) -> dict[str, _Seen]:
    """Run once, noting calls of the modules that could be replaced, parents before children.

    By name, so that a module that is replaced is let go at once: on a GPU it would be too much.
    """
    names = [name for name, module in model.named_modules() if _kind(module) is not None]
    seen: dict[str, _Seen] = {}

    def watcher(name: str) -> Callable[..., None]:
        def note(_: nn.Module, args: Any, given: Any, result: Any) -> None:
            seen[name] = _Seen(_copied(args), _copied(given), _first(result).clone())

        return note

    handles = [
        model.get_submodule(name).register_forward_hook(watcher(name), with_kwargs=True)
        for name in names
    ]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return {name: seen[name] for name in names if name in seen}


def _kind(module: nn.Module) -> str | None:
    name = type(module).__name__
    if name.endswith("RMSNorm") and epsilon_of(module) is not None:
        return "norm" if isinstance(getattr(module, "weight", None), nn.Parameter) else None
    if name.endswith("MLP"):
        return "mlp" if _can_join(module, GATED) and _has_linears(module, "down_proj") else None
    if name in ATTENTIONS:
        can_join = _can_join(module, PROJECTED) and _has_linears(module, "o_proj")
        return "attention" if can_join else None
    return "layer" if name in LAYERS else None


def _has_linears(module: nn.Module, *names: str) -> bool:
    return all(type(getattr(module, name, None)) is nn.Linear for name in names)


def _can_join(module: nn.Module, names: tuple[str, ...]) -> bool:
    """All are linear layers, and all have a bias or none has."""
    if not _has_linears(module, *names):
        return False
    return len({getattr(module, name).bias is None for name in names}) == 1


def _candidates(module: nn.Module, options: dict[int, Options]) -> Iterator[nn.Module]:
    """What could stand in for a module; the first that agrees does."""
    any_module: Any = module
    match _kind(module):
        case "norm":
            for offset in OFFSETS:
                yield FusedRMSNorm(module, offset=offset)
        case "mlp":
            for activation in ACTIVATIONS:
                yield FusedMLP(module, activation=activation)
        case "attention":
            yield FusedAttention(any_module, options=options[any_module.layer_idx])
        case "layer" if isinstance(any_module.post_attention_layernorm, FusedRMSNorm):
            yield FusedLayer(any_module)


def _first(result: Any) -> torch.Tensor:
    found: torch.Tensor = result[0] if isinstance(result, tuple) else result
    return found


def _copied(value: Any) -> Any:
    """Tensors in tuples and dicts cloned."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, tuple):
        return tuple(_copied(item) for item in value)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value
