"""Drafts change how many tokens come out, never which, nor how they are distributed."""

from __future__ import annotations

import pytest
import torch

from runners.common.philox import ACCEPT, DRAW, REDRAW, uniforms
from runners.triton.kernels.distributions import write_distributions
from runners.triton.kernels.lossless_rejection import reject_drafts, reject_drafts_reference
from runners.triton.kernels.sample import sample_tokens
from tests.kernels.support import Guards

NUM_REQUESTS = 3000
# the kernel is given so many: a program takes long in the interpreter
NUM_RUN = 120
# Of a chi-square with 5 degrees of freedom, exceeded once in 10,000 times; the draws are seeded.
CRITICAL = 25.7
TARGET = torch.tensor(
    [
        [0.40, 0.25, 0.05, 0.15, 0.10, 0.05],
        [0.05, 0.10, 0.30, 0.30, 0.05, 0.20],
        [0.20, 0.20, 0.10, 0.10, 0.10, 0.30],
    ]
)
ONE_HOT = torch.eye(6)
DRAFTERS = {
    "certain": ONE_HOT[[1, 5]],
    "certain of the unlikely": ONE_HOT[[2, 4]],
    "uniform": torch.full((2, 6), 1 / 6),
    "peaked on the wrong token": ONE_HOT[[2, 4]] * 0.94 + 0.01,
    "equal": TARGET[:2],
    "near": TARGET[:2] * 0.8 + 0.2 / 6,
}


def whole(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def cut(tokens: torch.Tensor, counts: torch.Tensor) -> list[list[int]]:
    return [row[:count] for row, count in zip(tokens.tolist(), counts.tolist(), strict=True)]


def rejected(
    device: str, target: torch.Tensor, proposed: torch.Tensor, drafts: torch.Tensor, tile: int = 64
) -> list[list[int]]:
    """What comes out for requests of their own seeds that share rows of logits."""
    guards = Guards(device)
    number, width = drafts.shape
    tokens = guards.empty(number, width + 1, dtype=torch.int32)
    counts = guards.empty(number, dtype=torch.int32)
    reject_drafts(
        guards.put(target),
        guards.put(proposed).expand(number, width, -1),
        guards.put(drafts),
        guards.put(whole([width] * number)),
        guards.put(whole([0] * number)),
        guards.put(torch.arange(number)),
        guards.put(torch.full((number,), 7)),
        tokens,
        counts,
        tile=tile,
    )
    guards.check()
    assert ((tokens == -1).sum(dim=1) + counts == width + 1).all()
    return cut(tokens, counts)


def numbers(seeds: list[int], positions: list[int], width: int) -> torch.Tensor:
    """[3, R, width]: all words of positions that follow one another."""
    count = len(seeds)
    places = [position + index for position in positions for index in range(width)]
    repeated = [seed for seed in seeds for _ in range(width)]
    words = [uniforms(repeated, places, word) for word in (DRAW, ACCEPT, REDRAW)]
    return torch.stack([torch.from_numpy(word).view(count, width) for word in words])


def by_reference(
    target: torch.Tensor, proposed: torch.Tensor, drafts: torch.Tensor
) -> list[list[int]]:
    """The same in torch."""
    number, width = drafts.shape
    tokens, counts = whole([0] * number * (width + 1)).view(number, -1), whole([0] * number)
    shares = numbers(list(range(number)), [7] * number, width + 1)
    rows = whole([width] * number), whole([0] * number)
    proposed = proposed.expand(number, width, -1)
    reject_drafts_reference(target, proposed, drafts, *rows, shares, tokens, counts)
    return cut(tokens, counts)


def drafts_from(proposed: torch.Tensor, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return proposed.multinomial(number, replacement=True, generator=generator).T.int()


def chi_square(tokens: list[int], chances: torch.Tensor) -> float:
    counts = torch.bincount(torch.tensor(tokens), minlength=len(chances))
    expected = len(tokens) * chances
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("name", DRAFTERS)
def test_tokens_are_distributed_as_without_drafts(device: str, name: str) -> None:
    proposed = DRAFTERS[name]
    drafts = drafts_from(proposed, NUM_REQUESTS)
    drawn = by_reference(TARGET, proposed, drafts)
    for position in range(3):
        tokens = [row[position] for row in drawn if len(row) > position]
        if len(tokens) > 100:
            assert chi_square(tokens, TARGET[position]) < CRITICAL
    chance = float(torch.minimum(TARGET[0], proposed[0]).sum())
    accepted = sum(len(row) > 1 for row in drawn) / NUM_REQUESTS
    assert abs(accepted - chance) < 4 * (chance * (1 - chance) / NUM_REQUESTS) ** 0.5 + 1e-9
    assert rejected(device, TARGET, proposed, drafts[:NUM_RUN]) == drawn[:NUM_RUN]
    assert chi_square([row[0] for row in drawn[:NUM_RUN]], TARGET[0]) < CRITICAL


def test_a_drafter_equal_to_the_target_is_always_right(device: str) -> None:
    proposed = TARGET[:2]
    drafts = drafts_from(proposed, 100)
    drawn = rejected(device, TARGET, proposed, drafts)
    assert [row[:2] for row in drawn] == drafts.tolist()
    assert {len(row) for row in drawn} == {3}


@pytest.mark.parametrize("name", ["certain", "uniform", "near"])
def test_greedy_gives_what_it_gives_without_drafts(device: str, name: str) -> None:
    best = [3, 2, 5]
    drafts = torch.cat([drafts_from(DRAFTERS[name], 30), whole([[3, 2], [3, 4]])])
    drawn = rejected(device, ONE_HOT[best], DRAFTERS[name], drafts)
    for row, draft in zip(drawn, drafts.tolist(), strict=True):
        assert row == best[: 1 + (draft[0] == 3) + (draft == [3, 2])]


def test_a_token_that_differs_by_rounding_alone_can_still_be_replaced(device: str) -> None:
    # the draft cannot be, and nothing of the target is above what was proposed
    target, proposed = torch.tensor([[0.5, 0.5, 0.0]] * 2), torch.tensor([[0.6, 0.6, 0.1]])
    drawn = rejected(device, target, proposed, whole([[2]] * 40))
    assert {tuple(row) for row in drawn} == {(0,), (1,)}


@pytest.mark.parametrize("tile", [16, 128])
def test_tokens_are_the_references(device: str, tile: int) -> None:
    guards = Guards(device)
    target, proposed = noise(17, 97).softmax(-1), noise(6, 3, 97).softmax(-1)
    target[0], proposed[0, 0] = ONE_HOT[0].repeat(17)[:97] / 17, target[1]
    drafts = target[[0, 4, 4, 5, 9, 13]].topk(3).indices.int()
    seeds, positions = noise(6).long() * 2**60, torch.arange(6) * 2**31
    rows = whole([3, 0, 2, 3, 1, 3]), whole([0, 4, -1, 5, 9, 13])
    given = [guards.put(values) for values in (target, proposed, drafts, *rows)]
    tokens = guards.empty(6, 4, dtype=torch.int32)
    counts = guards.empty(6, dtype=torch.int32)
    reject_drafts(*given, guards.put(seeds), guards.put(positions), tokens, counts, tile=tile)
    guards.check()
    expected = torch.zeros(6, 4, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    shares = numbers(seeds.tolist(), positions.tolist(), 4)
    reject_drafts_reference(target, proposed, drafts, *rows, shares, *expected)
    assert tokens.tolist() == expected[0].tolist()
    assert counts.tolist() == expected[1].tolist()
    assert len(set(expected[1].tolist())) > 2


def test_limits_of_sampling_make_the_target(device: str) -> None:
    guards, heat = Guards(device), torch.full((3,), 0.7, device=device)
    logits = guards.put(TARGET.log() * 0.7 + 4)
    all_tokens, zeros = torch.zeros(3, dtype=torch.int32, device=device), torch.zeros_like(heat)
    tokens = guards.empty(3, dtype=torch.int32)
    limits = guards.empty(3, 3, dtype=torch.float32)
    target = guards.empty(3, 6, dtype=torch.float32)
    filters = all_tokens, zeros + 1, zeros
    sample_tokens(logits, heat, *filters, *[zeros.long()] * 2, tokens, limits=limits)
    write_distributions(logits, heat, tokens, limits, target)
    guards.check()
    torch.testing.assert_close(target.cpu(), TARGET)
