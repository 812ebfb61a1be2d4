"""Philox: the published words, and numbers of a seed and a position alone."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from runners.common.philox import ACCEPT, DRAW, REDRAW, philox, uniforms  # noqa: E402


def words(*values: int) -> list[np.ndarray]:
    return [np.array([value], dtype=np.uint64) for value in values]


# The known answers of Random123, the authors' own library, for philox4x32-10.
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_words_are_the_published_ones(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert [int(word[0]) for word in philox(words(*counter), words(*key))] == list(expected)


def test_numbers_are_below_one_and_spread_evenly() -> None:
    numbers = uniforms([7] * 20_000, range(20_000))
    assert numbers.dtype == np.float32
    assert 0 <= numbers.min() < numbers.max() < 1
    counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
    # of a chi-square with 9 degrees of freedom, exceeded once in 10,000 times
    assert float(((counts - 2000) ** 2 / 2000).sum()) < 33.7


def test_seed_position_and_word_each_give_other_numbers() -> None:
    seeds = [0, 1, 2**32, 2**63, 2**64 - 1]
    found = {
        float(uniforms([seed], [position], word)[0])
        for seed in seeds
        for position in (0, 1, 2**32)
        for word in (DRAW, ACCEPT, REDRAW)
    }
    assert len(found) == 45
