"""Prompt lookup: drafts from the request's own tokens (Saxena, "Prompt Lookup Decoding", 2023)."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def propose_ngram(
    tokens: Sequence[int], num_drafts: int, max_ngram: int = 3, min_ngram: int = 2
) -> list[int]:
    """The tokens that followed the newest n-gram when it last occurred, longest n first.

    Args:
        tokens: prompt and output, oldest first.
        num_drafts: most drafts to propose.
        max_ngram, min_ngram: longest and shortest n-gram looked up, in tokens.

    Returns:
        Up to `num_drafts` token ids; empty if the newest tokens never occurred before.
    """
    if num_drafts <= 0:
        return []
    text = array("I", tokens)
    width = text.itemsize
    haystack = text.tobytes()
    for size in range(min(max_ngram, len(text) - 1), min_ngram - 1, -1):
        needle = haystack[-size * width :]
        end = len(haystack) - width
        while (at := haystack.rfind(needle, 0, end)) >= 0:
            if at % width == 0:
                first = at // width + size
                return list(text[first : first + num_drafts])
            end = at + len(needle) - 1
    return []
