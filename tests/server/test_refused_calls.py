"""What is refused: OpenAI's shape of an error, a status, and a sentence that names the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.server.standin import build_server

if TYPE_CHECKING:
    import httpx

    from tests.server.standin import Server

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
JSON = {"Content-Type": "application/json"}


def expect(answer: httpx.Response, status: int, param: str | None, *words: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    for word in words:
        assert word in error["message"]


@pytest.mark.parametrize(
    ("fields", "param", "word"),
    [
        ({"temperature": "hot"}, "temperature", "'hot', allowed: a valid number"),
        ({"temperature": -1}, "temperature", "allowed: a finite number of at least 0"),
        ({"max_tokens": 1.5}, "max_tokens", "1.5, allowed: a valid integer"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"n": 0}, "n", "0, allowed: a number of at least 1"),
        ({"top_p": 1.1}, "top_p", "(0, 1]"),
        ({"stream": "yes"}, "stream", "a valid boolean"),
        ({"seed": True}, "seed", "a valid integer"),
        ({"logprobs": 21}, "logprobs", "21, allowed: a number of at most 20"),
        ({"stop": [""]}, "stop", "non-empty strings"),
        ({"deadline_s": -1}, "deadline_s", "at least 0"),
        ({"prompt": ""}, "prompt", "a non-empty string"),
        ({"prompt": [1, "a"]}, "prompt", "a list of token ids"),
        ({"prompt": None}, "prompt", "got None"),
        (
            {"prompt": [-1]},
            "prompt",
            "a list of token ids (ints of at least 0)",
        ),
        ({"stop": ["x"] * 65}, "stop", "a list of at most 64"),
        ({"stream": True, "stream_options": 5}, "stream_options", "an object"),
        ({"min_tokens": 99}, "min_tokens", "at most max_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "only with stream=true"),
        ({"suffix": "end"}, "suffix", "not supported"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ({"best_of": 3}, "best_of", "n (1)"),
        ({"response_format": {"type": "json_object"}}, "response_format", "{'type': 'text'}"),
        ({"echo": True, "logprobs": 1}, "echo", "false where logprobs"),
        ({"skip_special_tokens": False}, "skip_special_tokens", "true"),
        ({"kv_transfer_params": {"a": 1}}, "kv_transfer_params", "no plugin of the stack"),
    ],
)
def test_a_wrong_field_of_a_completion(
    server: Server, fields: dict[str, Any], param: str, word: str
) -> None:
    answer = server.post(TEXT, {"prompt": "x", **fields})
    expect(answer, 400, param, f"{param}: got ", word)


@pytest.mark.parametrize(
    ("fields", "param", "word"),
    [
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"tool_choice": "required"}, "tool_choice", "'none', 'auto'"),
        ({"modalities": ["text", "audio"]}, "modalities", "['text']"),
        ({"audio": {"voice": "x"}}, "audio", "not supported"),
        ({"top_logprobs": 3}, "top_logprobs", "logprobs is true"),
        ({"messages": []}, "messages", "messages: got [], allowed: a list of at least 1"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages", "messages.0.role"),
        ({"messages": "hello"}, "messages", "a valid list"),
        ({"messages": [5]}, "messages", "messages.0: got 5, allowed: an object"),
        ({"messages": [{"role": "user"}]}, "messages", "messages.0.content: it is missing"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]},
            "messages",
            "messages.0.tool_calls: got [{}]",
        ),
        ({"stop": 5}, "stop", "stop: got 5, allowed: a valid string or a valid list"),
        ({"stop": ["a", 5]}, "stop", "stop.1: got 5, allowed: a valid string"),
    ],
)
def test_a_wrong_field_of_a_chat(
    server: Server, fields: dict[str, Any], param: str, word: str
) -> None:
    expect(server.post(CHAT, {**HELLO, **fields}), 400, param, word)


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_nobody_says_nothing(server: Server, role: str) -> None:
    body = {"messages": [*HELLO["messages"], {"role": role, "content": None}]}
    expect(server.post(CHAT, body), 400, "messages", "messages.1.content: it is missing")


def test_a_part_that_is_no_text_is_named(server: Server) -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
    answer = server.post(CHAT, body)
    expect(answer, 400, "messages", "messages.0.content.0.type: got 'image_url', allowed: 'text'")


def test_harmless_fields_are_passed_over(server: Server) -> None:
    harmless = {"store": True, "metadata": {"a": "b"}, "tools": [], "tool_choice": "none"}
    harmless |= {"logit_bias": {}, "response_format": {"type": "text"}, "service_tier": "auto"}
    body = {**HELLO, **harmless, "modalities": ["text"], "max_tokens": 1}
    assert server.post(CHAT, body).status_code == 200


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temprature", "temperature"),
        ("max_token", "max_tokens"),
        ("steram", "stream"),
        ("tool_choise", "tool_choice"),
    ],
)
def test_a_field_that_is_nearly_one_is_not_passed_over(
    server: Server, name: str, meant: str
) -> None:
    answer = server.post(CHAT, {**HELLO, name: 0})
    expect(answer, 400, name, f"{name}: there is no such field. Did you mean {meant!r}?")


@pytest.mark.parametrize("name", ["top_a", "tempurature_x", "metadata", "prompt_cache_key"])
def test_a_field_that_is_not_nearly_one_is_passed_over(server: Server, name: str) -> None:
    assert server.post(CHAT, {**HELLO, name: 0, "max_tokens": 1}).status_code == 200


def test_a_missing_field_is_named(server: Server) -> None:
    expect(server.post(CHAT, {}), 400, "messages", "messages: it is missing")


def test_a_body_that_is_no_json_object(server: Server) -> None:
    broken = server("POST", TEXT, content=b'{"prompt": ', headers=JSON)
    expect(broken, 400, None, "body: not JSON")
    for body in (b'{"prompt": "\xff"}', b"[" * 100_000):
        expect(server("POST", TEXT, content=body, headers=JSON), 400, None, "body: not JSON")
    expect(server("POST", TEXT, content=b"", headers=JSON), 400, None, "body: it is empty")
    for body in (b"[1]", b"5"):
        answer = server("POST", TEXT, content=body, headers=JSON)
        expect(answer, 400, None, "body: it is no JSON object")


@pytest.mark.parametrize("field", ["prompt", "stop", "user"])
def test_half_a_surrogate_pair_is_no_text(server: Server, field: str) -> None:
    for value in ('"\\ud800"', '["\\ud800"]')[: 1 if field == "user" else 2]:
        body = f'{{"prompt": "x", "{field}": {value}}}'.encode()
        expect(server("POST", TEXT, content=body, headers=JSON), 400, field, "ud800")


def test_half_a_surrogate_pair_is_no_name_of_a_field(server: Server) -> None:
    bodies = {None: '{"\\ud800": 1}', "stream_options": '{"stream_options": {"\\ud800": 1}}'}
    for param, body in bodies.items():
        answer = server("POST", TEXT, content=body.encode(), headers=JSON)
        expect(answer, 400, param, "got '\\ud800', allowed: text without lone surrogates")


def test_a_form_from_a_web_page_is_not_taken_for_json(server: Server) -> None:
    headers = {"Content-Type": "text/plain"}
    answer = server("POST", TEXT, content=b'{"prompt": "x"}', headers=headers)
    expect(answer, 400, None, "Content-Type: application/json")


def test_a_model_that_is_not_served(server: Server) -> None:
    answer = server.post(TEXT, {"prompt": "x", "model": "gpt"})
    expect(answer, 404, "model", "'gpt'", "'scripted'")
    assert answer.json()["error"]["code"] == "model_not_found"


def test_an_unknown_path_and_method(server: Server) -> None:
    expect(server("GET", "/v2"), 404, None, "path: got /v2, allowed: /v1/completions, ")
    answer = server("GET", TEXT)
    expect(answer, 405, None, "method: got GET, allowed for /v1/completions: POST")
    assert (answer.headers["allow"], answer.json()["error"]["code"]) == (
        "POST",
        "method_not_allowed",
    )


def test_a_prompt_that_is_too_long(server: Server) -> None:
    answer = server.post(TEXT, {"prompt": "x" * 300})
    expect(answer, 400, "prompt", "300", "max_model_len 256")


@pytest.mark.parametrize(("path", "param"), [(TEXT, "prompt"), (CHAT, "messages")])
@pytest.mark.parametrize(("n", "who"), [(1, "the request can"), (2, "choice 0 can")])
def test_a_request_that_the_pool_never_holds(path: str, param: str, n: int, who: str) -> None:
    body = {**HELLO, "prompt": "x", "max_tokens": 100, "n": n}
    answer = build_server(num_blocks=9).post(path, body)
    expect(answer, 400, param, f"{who} never fit", "the pool has 8")


def test_models_tell_what_the_pool_holds() -> None:
    card = build_server(num_blocks=9)("GET", "/v1/models/scripted").json()
    assert card["max_model_len"] == 32


def test_a_bad_name_for_a_request(server: Server) -> None:
    answer = server.post(TEXT, {"prompt": "x"}, headers={"X-Request-Id": "a" * 129})
    expect(answer, 400, None, "X-Request-Id", "1 to 128")


def test_the_wrong_key_or_none() -> None:
    server = build_server(api_key="secret")
    expect(server("GET", "/v1/models"), 401, None, "missing")
    wrong = server("GET", "/v1/models", headers={"Authorization": "Bearer secre"})
    expect(wrong, 401, None, "wrong")
    assert server("GET", "/metrics").status_code == 401
    assert server("GET", "/health").status_code == 200
    right = server("GET", "/v1/models", headers={"Authorization": "Bearer secret"})
    assert right.status_code == 200


@pytest.mark.parametrize("host", ["a/health?", "a/health#", ""])
def test_a_made_up_host_opens_no_path(host: str) -> None:
    server = build_server(api_key="secret")
    assert server("GET", "/admin/plugins", headers={"Host": host}).status_code == 401
    assert server("GET", "/v1/models", headers={"Host": host}).status_code == 401


def test_nobody_s_body_is_read_before_the_key() -> None:
    answer = build_server(api_key="secret")("POST", TEXT, content=b"{", headers=JSON)
    assert answer.status_code == 401
