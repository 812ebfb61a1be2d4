"""What the kernels that draw are made of: their numbers, their pivots, their picks."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from runners.common.philox import ACCEPT, DRAW, REDRAW, uniforms
from runners.triton.kernels.drawing import philox_words, pick, uniform_of
from runners.triton.kernels.thresholds import middle
from tests.kernels.support import Guards

INFINITE = float("inf")


@triton.jit
def numbers_kernel(seed, positions, found, count: tl.constexpr):
    place = tl.arange(0, count)
    words = philox_words(tl.load(seed), tl.load(positions + place))
    tl.store(found + place, uniform_of(words[0]))
    tl.store(found + count + place, uniform_of(words[1]))
    tl.store(found + 2 * count + place, uniform_of(words[2]))


@pytest.mark.parametrize("seed", [0, 5, 2**40 + 1, 2**63 + 5, 2**64 - 1])
def test_numbers_are_those_of_the_cpu_bit_for_bit(device: str, seed: int) -> None:
    guards = Guards(device)
    positions = [*range(252), 2**31, 2**32, 2**33 + 1, 2**62]
    signed = torch.tensor([seed - 2**64 if seed >= 2**63 else seed], device=device)
    found = guards.empty(3, 256, dtype=torch.float32)
    numbers_kernel[(1,)](signed, guards.put(torch.tensor(positions)), found, 256)
    guards.check()
    for word in (DRAW, ACCEPT, REDRAW):
        expected = torch.from_numpy(uniforms([seed] * 256, positions, word))
        assert torch.equal(found[word].cpu(), expected)


@triton.jit
def middle_kernel(low, high, turn, found):
    tl.store(found, middle(tl.load(low), tl.load(high), turn))


@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-0.0, 1e-45),
        (-1e-45, 0.0),
        (1.0, 1.0000001),
        (-INFINITE, 3e38),
        (-3e38, INFINITE),
        (-3e38, 3e38),
        (-2.0, -1.0),
        (1e-30, 7.0),
    ],
)
def test_the_middle_is_above_the_one_and_not_above_the_other(
    device: str, low: float, high: float, turn: int
) -> None:
    ends = torch.tensor([low, high], device=device)
    found = torch.zeros(1, device=device)
    middle_kernel[(1,)](ends, ends[1:], turn, found)
    assert ends[0] < found[0] <= ends[1]


@triton.jit
def pick_kernel(masses, wanted, found, count: tl.constexpr):
    place = tl.arange(0, count)
    tl.store(found, pick(tl.load(masses + place), 100 + place, 0.5, tl.load(wanted)))


@pytest.mark.parametrize(
    ("wanted", "place"), [(0.0, 101), (0.6, 101), (1.5, 104), (3.4, 105), (3.5, 105), (9.0, 105)]
)
def test_a_place_without_mass_is_never_picked_whatever_is_wanted(
    device: str, wanted: float, place: int
) -> None:
    masses = torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0], device=device)
    found = torch.zeros(1, dtype=torch.int32, device=device)
    pick_kernel[(1,)](masses, torch.tensor([wanted], device=device), found, 8)
    assert found.tolist() == [place]
