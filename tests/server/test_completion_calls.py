"""/v1/completions and /v1/chat/completions: what comes back, whole and streaming."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.server.standin import Server

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def events(text: str) -> list[Any]:
    """The data of each event; [DONE] as it is."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_a_completion_has_openai_s_shape(server: Server) -> None:
    answer = server.post(TEXT, {"model": "scripted", "prompt": "hello", "max_tokens": 3}).json()
    assert answer["object"] == "text_completion" and answer["id"].startswith("cmpl-")
    (choice,) = answer["choices"]
    assert (choice["text"], choice["index"], choice["finish_reason"]) == ("abc", 0, "length")
    assert answer["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_a_chat_completion_has_openai_s_shape(server: Server) -> None:
    answer = server.post(CHAT, {**HELLO, "max_completion_tokens": 4}).json()
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "scripted"
    message = answer["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "abcd", "refusal": None}


def test_parts_of_text_make_one_message(server: Server) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
    assert server.post(CHAT, body).json()["usage"]["prompt_tokens"] == len("user: one\ntwo\n")


def test_without_a_number_of_tokens_a_completion_has_sixteen_and_a_chat_what_fits(
    server: Server,
) -> None:
    assert server.post(TEXT, {"prompt": "x"}).json()["usage"]["completion_tokens"] == 16
    usage = server.post(CHAT, HELLO).json()["usage"]
    assert usage["total_tokens"] == 256


def test_prompts_and_choices_are_told_in_order(server: Server) -> None:
    body = {"prompt": ["one", "three"], "n": 2, "max_tokens": 1, "echo": True}
    answer = server.post(TEXT, body).json()
    texts = [(choice["index"], choice["text"]) for choice in answer["choices"]]
    assert texts == [(0, "onea"), (1, "onea"), (2, "threea"), (3, "threea")]
    assert answer["usage"]["prompt_tokens"] == 8
    assert answer["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("prompt", ["ab", ["ab"], [97, 98], [[97, 98]]])
def test_a_prompt_may_be_text_or_tokens_or_a_list(server: Server, prompt: Any) -> None:
    answer = server.post(TEXT, {"prompt": prompt, "max_tokens": 1, "echo": True}).json()
    assert [choice["text"] for choice in answer["choices"]] == ["aba"]


def test_a_stop_string_ends_the_text_before_it(server: Server) -> None:
    for stop in ("ef", ["xy", "ef"]):
        (choice,) = server.post(TEXT, {"prompt": "x", "stop": stop}).json()["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("abcd", "stop")
        assert choice["stop_reason"] == "ef"


def test_a_stop_token_is_kept_out_of_nothing(server: Server) -> None:
    (choice,) = server.post(TEXT, {"prompt": "x", "stop_token_ids": [99]}).json()["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", 99)


def test_a_stream_of_text_ends_with_done(server: Server) -> None:
    answer = server.post(TEXT, {"prompt": "x", "max_tokens": 3, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, last = events(answer.text)
    assert last == "[DONE]"
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["a", "b", "c"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert "usage" not in chunks[0]


def test_a_stream_of_chat_says_first_who_speaks(server: Server) -> None:
    body = {**HELLO, "max_tokens": 2, "stream": True}
    first, *rest, _ = events(server.post(CHAT, body).text)
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["delta"] for chunk in rest] == [{"content": "a"}, {"content": "b"}]


def test_a_stream_tells_its_usage_last_if_asked(server: Server) -> None:
    body = {"prompt": "xy", "max_tokens": 3, "stream": True}
    body["stream_options"] = {"include_usage": True}
    *chunks, last, done = events(server.post(TEXT, body).text)
    assert done == "[DONE]" and last["choices"] == []
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (2, 3)
    assert all(chunk["usage"] is None for chunk in chunks)


def test_a_stream_tells_its_usage_all_along_if_asked(server: Server) -> None:
    body = {"prompt": "xy", "max_tokens": 3, "stream": True}
    body["stream_options"] = {"continuous_usage_stats": True}
    *chunks, _ = events(server.post(TEXT, body).text)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 3]


def test_streams_of_several_choices_are_whole(server: Server) -> None:
    body = {**HELLO, "max_tokens": 12, "stream": True, "n": 3, "stop": "de"}
    texts = ["", "", ""]
    for chunk in events(server.post(CHAT, body).text)[:-1]:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == ["abc"] * 3


def test_a_client_may_name_its_request(server: Server) -> None:
    answer = server.post(TEXT, {"prompt": "x"}, headers={"X-Request-Id": "mine"})
    assert answer.json()["id"] == "cmpl-mine"
    assert answer.headers["x-request-id"] == "mine"


def test_the_models_are_listed(server: Server) -> None:
    (model,) = server("GET", "/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("scripted", "model")
    assert server("GET", "/v1/models/scripted").json() == model
    assert server("GET", "/v1/models/other").status_code == 404
