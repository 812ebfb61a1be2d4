"""KV is shared only between requests that are equal in adapter, salt and images too."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from framework import EncoderInput
from tests.support import bench, prompt

IMAGE = EncoderInput(content_id="t1", position=0, num_tokens=4)
UNLIKE: dict[str, dict[str, Any]] = {
    "plain": {},
    "adapter": {"adapter": "t1"},
    "salt": {"cache_salt": "t1"},
    "image": {"encoder_inputs": [IMAGE]},
    "adapter a, salt b": {"adapter": "a", "cache_salt": "b"},
    "adapter b, salt a": {"adapter": "b", "cache_salt": "a"},
    "adapter with a salt in its name": {"adapter": "asalt:b"},
    "adapter ab": {"adapter": "ab"},
    "salt ab": {"cache_salt": "ab"},
    "forged salt": {"cache_salt": "adapter:2:t1"},
    "forged adapter": {"adapter": "a4:salt1:b"},
    "image elsewhere": {
        "encoder_inputs": [EncoderInput(content_id="t1", position=1, num_tokens=4)]
    },
    "other image": {"encoder_inputs": [EncoderInput(content_id="t2", position=0, num_tokens=4)]},
    "image and salt": {"encoder_inputs": [IMAGE], "cache_salt": "t1"},
}


def hit_after(first: dict[str, Any], second: dict[str, Any]) -> int:
    """Cached tokens that the second request finds after the first has run to its end."""
    b = bench(blocks=12)
    b.add("A", prompt(9), **first)
    b.finish()
    b.add("B", prompt(9), **second)
    b.finish()
    return b.hit("B")


@pytest.mark.parametrize(("first", "second"), list(combinations(UNLIKE, 2)))
def test_unlike_requests_share_nothing(first: str, second: str) -> None:
    assert hit_after(UNLIKE[first], UNLIKE[second]) == 0


@pytest.mark.parametrize("kind", UNLIKE)
def test_like_requests_share_what_is_full(kind: str) -> None:
    assert hit_after(UNLIKE[kind], UNLIKE[kind]) == 8


@pytest.mark.parametrize("empty", [{"cache_salt": ""}, {"adapter": ""}, {"cache_salt": None}])
def test_an_empty_adapter_or_salt_counts_as_none(empty: dict[str, Any]) -> None:
    assert hit_after({}, empty) == 8
    assert hit_after(empty, {}) == 8


def test_an_image_separates_only_from_its_own_block_on() -> None:
    """It lies in the second block, so the first may be shared with another image there."""
    cat, dog = (EncoderInput(content_id=name, position=4, num_tokens=4) for name in ("cat", "dog"))
    assert hit_after({"encoder_inputs": [cat]}, {"encoder_inputs": [dog]}) == 4
