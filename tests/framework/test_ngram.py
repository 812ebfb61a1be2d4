"""Prompt lookup equals its definition."""

from __future__ import annotations

import random

import pytest

from framework.ngram import propose_ngram


def by_definition(tokens: list[int], count: int, longest: int, shortest: int) -> list[int]:
    for size in range(longest, shortest - 1, -1):
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start : start + size] == tokens[len(tokens) - size :]:
                return tokens[start + size : start + size + count]
    return []


@pytest.mark.parametrize("seed", range(20))
def test_drafts_are_what_followed_the_newest_match_of_the_longest_ngram(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        # tokens beyond 255 and 65,535, so that a match across the bytes of two tokens would show
        words = [draw.choice([0, 1, 256, 65_536, 16_777_216, 257]) for _ in range(4)]
        tokens = [draw.choice(words) for _ in range(draw.randint(1, 30))]
        count, shortest = draw.randint(0, 4), draw.randint(1, 3)
        longest = shortest + draw.randint(0, 2)
        expected = by_definition(tokens, count, longest, shortest) if count else []
        assert propose_ngram(tokens, count, longest, shortest) == expected
