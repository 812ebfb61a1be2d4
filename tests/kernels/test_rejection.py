"""Drafts change how many tokens come out, never which, nor how they are distributed."""

from __future__ import annotations

import pytest
import torch

from framework import SamplingParams
from runners.common.philox import ACCEPT, DRAW, REDRAW, uniforms
from runners.common.sampling import rows_of, sample
from runners.common.state import RequestState, ScheduledRow
from runners.triton.kernels.distributions import write_distributions
from runners.triton.kernels.lossless_rejection import reject_drafts, reject_drafts_reference
from runners.triton.kernels.rejection import verify_drafts, verify_drafts_reference
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
    found = zip(tokens.tolist(), counts.tolist(), strict=True)
    assert ((tokens == -1).sum(dim=1) + counts == width + 1).all()
    return [row[:count] for row, count in found]


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
    return [row[:count] for row, count in zip(tokens.tolist(), counts.tolist(), strict=True)]


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


def test_verified_tokens_are_the_references(device: str) -> None:
    guards = Guards(device)
    drawn = whole([5, 6, 7, 8, 5, 6, 7, 1, 2, 9])
    drafts = whole([[5, 6, 7], [5, 0, 7], [-1, -1, -1], [5, 5, 5], [9, -1, -1]])
    rows = whole([3, 2, 0, 0, 1]), whole([0, 4, 7, -1, 8])
    tokens = guards.empty(5, 4, dtype=torch.int32)
    counts = guards.empty(5, dtype=torch.int32)
    verify_drafts(*(guards.put(values) for values in (drawn, drafts, *rows)), tokens, counts)
    guards.check()
    assert tokens.tolist() == [
        [5, 6, 7, 8],
        [5, 6, -1, -1],
        [1] + [-1] * 3,
        [-1] * 4,
        [2] + [-1] * 3,
    ]
    assert counts.tolist() == [4, 2, 1, 0, 1]
    expected = torch.zeros(5, 4, dtype=torch.int32), torch.zeros(5, dtype=torch.int32)
    verify_drafts_reference(drawn, drafts, *rows, *expected)
    assert (tokens.tolist(), counts.tolist()) == (expected[0].tolist(), expected[1].tolist())


def test_without_drafts_there_is_one_token_each(device: str) -> None:
    none = torch.empty(2, 0, dtype=torch.int32, device=device)
    tokens = torch.zeros(2, 1, dtype=torch.int32, device=device)
    counts = torch.zeros(2, dtype=torch.int32, device=device)
    drawn, zeros, first = (whole(values).to(device) for values in ([4, 8], [0, 0], [1, 0]))
    verify_drafts(drawn, none, zeros, first, tokens, counts)
    assert (tokens.tolist(), counts.tolist()) == ([[8], [4]], [1, 1])


def scheduled(index: int, drafts: list[int], samples: bool) -> ScheduledRow:
    params = SamplingParams(temperature=0.5 * (index % 3), top_p=0.9, top_k=4 * (index % 2))
    state = RequestState(f"r{index}", [1] * (index + 2), 2, [], params, index + 1, 2**63 + index)
    return ScheduledRow(state, [1, *drafts], index + 1, len(drafts), samples)


def test_sampling_and_verifying_are_those_of_the_shared_rules(device: str) -> None:
    by_position = noise(20, 8) * 3
    best = by_position.argmax(dim=-1).tolist()
    requests = [
        scheduled(index, [best[index], best[index + 1], index % 8][: index % 4], index != 5)
        for index in range(16)
    ]
    rows = rows_of(requests)
    logits = torch.stack([by_position[row.num_outputs] for row in rows])
    guards, given = Guards(device), [row.params for row in rows]
    tokens = guards.empty(len(rows), dtype=torch.int32)
    sample_tokens(
        guards.put(logits),
        guards.put(torch.tensor([one.temperature for one in given])),
        guards.put(whole([one.top_k for one in given])),
        guards.put(torch.tensor([one.top_p for one in given])),
        guards.put(torch.tensor([one.min_p for one in given])),
        guards.put(torch.tensor([row.state.seed - 2**64 for row in rows])),
        guards.put(torch.tensor([row.num_outputs for row in rows])),
        tokens,
    )
    owners = [row.state.request_id for row in rows]
    first = [owners.index(f"r{index}") if index != 5 else -1 for index in range(16)]
    drafts = [(row.tokens[1:] + [-1] * 3)[:3] for row in requests]
    out, counts = guards.empty(16, 4, dtype=torch.int32), guards.empty(16, dtype=torch.int32)
    amounts = whole([row.num_drafts for row in requests])
    verify_drafts(
        tokens, *(guards.put(x) for x in (whole(drafts), amounts, whole(first))), out, counts
    )
    guards.check()
    found = [row[:count] for row, count in zip(out.tolist(), counts.tolist(), strict=True)]
    assert found == sample(requests, logits)[0]
    assert {len(row) for row in found} >= {0, 1, 2, 3}


def test_from_logits_to_tokens_the_distribution_stays(device: str) -> None:
    guards = Guards(device)
    heat = torch.full((3,), 0.7)
    logits = guards.put(TARGET.log() * heat[:, None] + 4)
    zeros = torch.zeros(3, device=device)
    tokens, limits = (
        torch.zeros(3, dtype=torch.int32, device=device),
        guards.empty(3, 3, dtype=torch.float32),
    )
    target = guards.empty(3, 6, dtype=torch.float32)
    ones, ids = zeros + 1, torch.zeros(3, dtype=torch.int64, device=device)
    heat = heat.to(device)
    sample_tokens(logits, heat, tokens, ones, zeros, ids, ids, tokens.clone(), limits=limits)
    write_distributions(logits, heat, tokens, limits, target)
    guards.check()
    torch.testing.assert_close(target.cpu(), TARGET)
