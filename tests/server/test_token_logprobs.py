"""Log-probabilities in the shapes of both calls."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from framework.output import TokenLogprobs
from framework.server import logprobs
from tests.server.standin import ByteTokenizer

ENTRIES = [
    TokenLogprobs(-0.5, 1, {97: -0.5, 98: -1.5}),
    TokenLogprobs(-2.0, 3, {97: -0.1, 98: float("-inf")}),
]
TOKENS = (97, 0xC3)


def test_a_completion_has_columns() -> None:
    told = logprobs.for_completion(ByteTokenizer(), TOKENS, ENTRIES, 2, (10, 11))
    assert told == {
        "tokens": ["a", "\ufffd"],
        "token_logprobs": [-0.5, -2.0],
        "top_logprobs": [{"a": -0.5, "b": -1.5}, {"a": -0.1, "b": -9999.0}],
        "text_offset": [10, 11],
    }


def test_a_chat_has_a_row_a_token() -> None:
    first, second = logprobs.for_chat(ByteTokenizer(), TOKENS, ENTRIES, 1)["content"]
    assert first == {
        "token": "a",
        "logprob": -0.5,
        "bytes": [97],
        "top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]}],
    }
    assert (second["token"], second["bytes"]) == ("\ufffd", None)


def test_without_likeliest_tokens_there_are_none() -> None:
    assert logprobs.for_completion(None, (5,), ENTRIES[:1], 0, (0,))["top_logprobs"] is None
    (only,) = logprobs.for_chat(None, (5,), ENTRIES[:1], 0)["content"]
    assert (only["token"], only["top_logprobs"]) == ("token_id:5", [])
