"""What a row of logits may draw, and what it draws with a given number: tensors in, tensors out.

The filters are one threshold a row. Whoever finds it by other means than sorting, as the GPU
kernel does, finds the same: it depends on the values alone, not on the order among equal ones.
"""

from __future__ import annotations

import torch


def floors(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
) -> torch.Tensor:
    """[N]: the smallest logit that a row may draw; -inf where nothing is left out.

    Top-k keeps the logits of at least the k-th largest; top-p, of what top-k left, those of at
    least the value at which the mass of the largest first reaches top_p; min-p those of at least
    min_p times the largest probability. So ties at a threshold are all kept.

    Args:
        logits: [N, V], fp32.
        temperature, top_p, min_p: [N], fp32.
        top_k: [N], integers; 0 = all.
    """
    top = logits.amax(dim=-1)
    floor = top + temperature * min_p.log()
    size = logits.shape[-1]
    count = torch.where((top_k > 0) & (top_k < size), top_k, size).long()
    if not bool(((count < size) | (top_p < 1)).any()):
        return floor
    ordered = logits.sort(dim=-1, descending=True).values
    by_count = ordered.gather(-1, count[:, None] - 1)
    mass = weights(ordered, temperature, by_count.squeeze(1)).double().cumsum(dim=-1)
    reached = mass >= top_p[:, None] * mass[:, -1:]
    by_mass = ordered.gather(-1, reached.byte().argmax(dim=-1, keepdim=True))
    least = torch.where(top_p < 1, by_mass.squeeze(1), by_count.squeeze(1))
    return torch.maximum(floor, least)


def weights(logits: torch.Tensor, temperature: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    """[N, V]: probabilities over that of the likeliest, 0 below the floor; they need not sum to 1.

    Args:
        logits: [N, V], fp32.
        temperature: [N], fp32, > 0.
        floor: [N], the smallest logit kept.
    """
    top = logits.amax(dim=-1, keepdim=True)
    below = torch.where(logits == top, 0.0, logits - top)
    # a temperature that is almost 0 must not make 0 / 0 of the likeliest
    found = (below / temperature.clamp(min=1e-30)[:, None]).exp()
    return found.masked_fill(logits < floor[:, None], 0.0)


def draw(masses: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """[N]: the first token, in vocabulary order, whose cumulative mass exceeds its row's share.

    Args:
        masses: [N, V], of at least 0; they need not sum to 1.
        uniforms: [N], in [0, 1): the share of the row's whole mass.
    """
    cumulative = masses.double().cumsum(dim=-1)
    wanted = uniforms.double()[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, wanted, right=True).squeeze(1)
    return tokens.clamp(max=masses.shape[-1] - 1)
