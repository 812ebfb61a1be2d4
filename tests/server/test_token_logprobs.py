"""Log-probabilities in the shapes of both calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi")

from framework.output import TokenLogprobs
from framework.server import logprobs
from tests.server.standin import ByteTokenizer

if TYPE_CHECKING:
    from tests.server.standin import Server

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"

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


@pytest.mark.parametrize("stream", [False, True])
def test_a_runner_that_gives_none_leaves_them_null(server: Server, stream: bool) -> None:
    chat = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "stream": stream}
    for path, body in ((CHAT, chat), (TEXT, {"prompt": "x", "logprobs": 1, "stream": stream})):
        answer = server.post(path, {**body, "max_tokens": 3})
        assert answer.status_code == 200
        told = [line.removeprefix("data: ") for line in answer.text.split("\n\n")]
        parts = [json.loads(part) for part in told if part not in ("", "[DONE]")]
        assert all(part["choices"][0]["logprobs"] is None for part in parts)
