"""Fused modules: what transformers does in many launches, in few.

A module is replaced by class name and only where the fused one gives the same on the input that
the original saw in one forward pass. Originals that do not agree stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from runners.triton.cache import Rotary
from runners.triton.kernels.rms_norm import rms_norm
from runners.triton.kernels.silu_mul import silu_mul

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.common.routing import Options

GATED = ("gate_proj", "up_proj")
PROJECTED = ("q_proj", "k_proj", "v_proj")


class FusedRMSNorm(nn.Module):
    """Root-mean-square norm in one launch. Input and output [..., hidden]."""

    def __init__(self, norm: nn.Module, *, offset: float) -> None:
        super().__init__()
        weight, epsilon = getattr(norm, "weight", None), epsilon_of(norm)
        assert isinstance(weight, nn.Parameter)
        assert epsilon is not None
        self.weight = weight
        self.epsilon = epsilon
        self.offset = offset

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """The norm of x, or with a residual of their sum, which the residual then holds."""
        return rms_norm(x, self.weight, self.epsilon, residual=residual, offset=self.offset)


class FusedMLP(nn.Module):
    """Gate and up projection as one product, activation and product of both in one launch."""

    def __init__(self, mlp: Any, *, activation: str) -> None:
        super().__init__()
        self.weight, self.bias = _joined([getattr(mlp, name) for name in GATED])
        self.down_proj = mlp.down_proj
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Input and output [..., hidden]."""
        both = functional.linear(x, self.weight, self.bias)
        out: torch.Tensor = self.down_proj(silu_mul(both, activation=self.activation))
        return out


class FusedAttention(nn.Module):
    """The three projections as one product; rotary embedding and cache write in one launch.

    Args:
        attention: a module of transformers with q_proj, k_proj, v_proj, o_proj, and q_norm and
            k_norm a head or neither.
        options: what it asks of the attention kernel.
    """

    def __init__(self, attention: Any, *, options: Options) -> None:
        super().__init__()
        self.weight, self.bias = _joined([getattr(attention, name) for name in PROJECTED])
        self.o_proj = attention.o_proj
        self.head_dim: int = attention.head_dim
        self.sizes = [getattr(attention, name).out_features for name in PROJECTED]
        self.q_norm = getattr(attention, "q_norm", None)
        self.k_norm = getattr(attention, "k_norm", None)
        self.layer_idx: int = attention.layer_idx
        self.headway_place = attention.headway_place
        self.options = options

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, None]:
        """[1, T, hidden] to [1, T, hidden]; what transformers adds for its caches is not read."""
        joined = functional.linear(hidden_states[0], self.weight, self.bias)
        query, key, value = (
            part.view(len(joined), -1, self.head_dim) for part in joined.split(self.sizes, dim=-1)
        )
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        cos, sin = (half[0] for half in position_embeddings)
        out = self.headway_place.cache.rotate_and_attend(
            self.layer_idx, query, key, value, rotary=Rotary(cos, sin), options=self.options
        )
        return self.o_proj(out.view(1, len(joined), -1)), None


class FusedLayer(nn.Module):
    """A layer that norms before attention and before the MLP: sum and second norm in one launch.

    Args:
        layer: a decoder layer whose norms are fused already.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.input_layernorm = layer.input_layernorm
        self.self_attn = layer.self_attn
        self.post_attention_layernorm: FusedRMSNorm = layer.post_attention_layernorm
        self.mlp = layer.mlp
        self.attention_type = getattr(layer, "attention_type", None)

    def forward(self, hidden_states: torch.Tensor, *_: object, **given: Any) -> torch.Tensor:
        """[1, T, hidden] to [1, T, hidden]. The input is used as working memory."""
        normal = self.input_layernorm(hidden_states)
        attended = self.self_attn(hidden_states=normal, **given)[0]
        normal = self.post_attention_layernorm(attended, hidden_states)
        return hidden_states.add_(self.mlp(normal))


def epsilon_of(norm: nn.Module) -> float | None:
    """What a norm adds under the root, under either of its names."""
    found = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    return found if isinstance(found, float) else None


def _joined(linears: Sequence[nn.Linear]) -> tuple[nn.Parameter, nn.Parameter | None]:
    """Weights one above the other, and their biases."""
    weight = torch.cat([linear.weight.detach() for linear in linears])
    biases = [linear.bias for linear in linears]
    if any(bias is None for bias in biases):
        if not all(bias is None for bias in biases):
            raise ValueError("projections with and without a bias are not joined")
        return nn.Parameter(weight, requires_grad=False), None
    bias = torch.cat([bias.detach() for bias in biases])
    return nn.Parameter(weight, requires_grad=False), nn.Parameter(bias, requires_grad=False)
