"""Log-probabilities and ranks are the model's own; distributions are what rows are drawn from."""

from __future__ import annotations

import pytest
import torch

from runners.triton.kernels.distributions import (
    write_distributions,
    write_distributions_reference,
)
from runners.triton.kernels.logprobs import token_logprobs, token_logprobs_reference
from tests.kernels.support import Guards, assert_close

INFINITE = float("inf")


def noise(rows: int, size: int) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(size)) * 4


@pytest.mark.parametrize(("size", "tile"), [(97, 128), (1000, 256)])
def test_logprobs_and_ranks_are_the_references(
    device: str, dtype: torch.dtype, size: int, tile: int
) -> None:
    guards = Guards(device)
    logits = noise(6, size).to(dtype)
    logits[3, ::2] = -INFINITE
    logits[4] = logits[4].round()
    tokens = torch.tensor([0, size - 1, 5, 7, 9, 11], dtype=torch.int32)
    tokens[5] = logits[5].argmax()
    expected = token_logprobs_reference(logits, tokens)
    found = token_logprobs(guards.put(logits), guards.put(tokens), tile=tile)
    guards.check()
    assert_close(found[0].cpu(), expected[0])
    assert found[1].tolist() == expected[1].tolist()
    assert found[1][5] == 1


def test_equal_logits_share_a_rank(device: str) -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0]] * 4, device=device)
    tokens = torch.arange(4, dtype=torch.int32, device=device)
    assert token_logprobs(logits, tokens)[1].tolist() == [4, 1, 1, 3]


def test_a_token_that_cannot_be_has_no_probability_and_padding_does_no_harm(device: str) -> None:
    logits = torch.tensor([[0.0, -INFINITE, 0.0]] * 2, device=device)
    tokens = torch.tensor([1, -1], dtype=torch.int64, device=device)
    logprobs, ranks = token_logprobs(logits, tokens)
    assert (float(logprobs[0]), int(ranks[0])) == (-INFINITE, 3)


def test_no_row_gives_nothing(device: str) -> None:
    none = torch.empty(0, dtype=torch.int32, device=device)
    logprobs, ranks = token_logprobs(torch.empty(0, 7, device=device), none)
    assert (len(logprobs), len(ranks)) == (0, 0)


@pytest.mark.parametrize("size", [97, 5000])
def test_distributions_are_the_references(device: str, dtype: torch.dtype, size: int) -> None:
    guards = Guards(device)
    logits = noise(4, size).to(dtype)
    temperature = torch.tensor([0.0, 0.7, 2.0, 1e-40])
    floors = torch.tensor([float("nan"), 1.0, -INFINITE, -INFINITE])
    heat = temperature.clamp(min=1e-30)[:, None]
    top = logits.float().amax(dim=-1, keepdim=True)
    kept = logits.float() >= floors[:, None]
    mass = (((logits.float() - top) / heat).exp() * kept).sum(dim=-1)
    limits = torch.stack([floors, top.squeeze(1), mass], dim=1)
    tokens = torch.tensor([5, 0, 0, 0], dtype=torch.int32)
    given = [guards.put(values) for values in (logits, temperature, tokens, limits)]
    found = guards.empty(4, size, dtype=torch.float32)
    write_distributions(*given, found)
    guards.check()
    temperature[3] = 1e-6
    expected = torch.empty(4, size)
    write_distributions_reference(logits, temperature, tokens, limits, expected)
    assert_close(found.cpu(), expected)
    assert found[0].nonzero().flatten().tolist() == [5]
    torch.testing.assert_close(found.sum(dim=-1).cpu(), torch.ones(4))
