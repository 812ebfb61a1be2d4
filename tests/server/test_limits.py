"""Limits on bodies, on the queue and on tenants; names that are taken; the server's end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.standin import ByteTokenizer, build_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from tests.server.standin import Server

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"


def while_one_runs(server: Server, later: dict[str, Any], **first: Any) -> Any:
    """The answer to a second call while a first one is held up; then both go on."""

    async def both(client: httpx.AsyncClient) -> tuple[httpx.Response, httpx.Response]:
        server.engine.is_paused = True
        body = {"prompt": "x", **first}
        running = asyncio.create_task(client.post(TEXT, json=body, headers={"X-Request-Id": "a"}))
        while not server.desk.num_unfinished:
            await asyncio.sleep(0)
        headers = later.pop("headers", None)
        second = asyncio.create_task(client.post(TEXT, json=later, headers=headers))
        await asyncio.wait((second,), timeout=0.05)
        server.engine.is_paused = False
        return await running, await second

    one, other = server.run(both)
    assert one.status_code == 200
    assert server.desk.num_unfinished == 0
    return other


def test_a_full_queue_tells_clients_to_come_back() -> None:
    answer = while_one_runs(build_server(max_queue=1), {"prompt": "y"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.json()["error"]["code"] == "queue_full"


def test_more_choices_than_the_queue_holds_never_fit() -> None:
    answer = build_server(max_queue=2).post(TEXT, {"prompt": "x", "n": 3})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")


def test_a_tenant_with_too_many_requests_is_named() -> None:
    server = build_server(max_per_tenant=1)
    answer = while_one_runs(server, {"prompt": "y", "user": "ann"}, user="ann")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert "user 'ann': 1 unfinished requests, allowed: 1" in answer.json()["error"]["message"]


def test_other_tenants_are_unharmed() -> None:
    server = build_server(max_per_tenant=1)
    assert while_one_runs(server, {"prompt": "y"}, user="ann").status_code == 200
    assert while_one_runs(server, {"prompt": "y", "user": "bob"}).status_code == 200


def test_those_without_user_are_one_tenant() -> None:
    answer = while_one_runs(build_server(max_per_tenant=1), {"prompt": "y"})
    assert "requests without user" in answer.json()["error"]["message"]


def test_the_name_of_an_unfinished_request_is_taken() -> None:
    server = build_server()
    later = {"prompt": "y", "headers": {"X-Request-Id": "a"}}
    answer = while_one_runs(server, later)
    assert answer.status_code == 409
    assert "'a'" in answer.json()["error"]["message"]
    assert server.post(TEXT, {"prompt": "x"}, headers={"X-Request-Id": "a"}).status_code == 200


def test_a_body_that_says_it_is_too_long() -> None:
    answer = build_server(max_body_bytes=100).post(TEXT, {"prompt": "x" * 100})
    assert answer.status_code == 413
    assert "allowed: at most 100" in answer.json()["error"]["message"]


def test_a_body_in_chunks_that_gets_too_long() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b" " * 20

    headers = {"Content-Type": "application/json"}
    answer = build_server(max_body_bytes=100)("POST", TEXT, content=chunks(), headers=headers)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"


def test_a_server_that_stops_lets_nobody_in(server: Server) -> None:
    server.desk.is_closing = True
    assert server.post(TEXT, {"prompt": "x"}).status_code == 503
    health = server("GET", "/health")
    assert (health.status_code, health.json()["status"]) == (503, "stopping")


def test_what_runs_when_the_desk_closes_is_cut_short(server: Server) -> None:
    async def cut(client: httpx.AsyncClient) -> httpx.Response:
        server.engine.is_paused = True
        running = asyncio.create_task(client.post(TEXT, json={"prompt": "x"}))
        while not server.desk.num_unfinished:
            await asyncio.sleep(0)
        await server.desk.close()
        return await running

    assert server.run(cut).json()["choices"][0]["finish_reason"] == "abort"


@pytest.mark.parametrize(("path", "given"), [(TEXT, None), (TEXT, 100), (CHAT, None), (CHAT, 100)])
def test_no_output_is_longer_than_the_server_s_limit(path: str, given: int | None) -> None:
    messages = [{"role": "user", "content": "hello"}]
    body = {"prompt": "x", "messages": messages, "max_tokens": given}
    answer = build_server(max_output_tokens=7).post(path, body).json()
    assert answer["usage"]["completion_tokens"] == 7
    assert answer["choices"][0]["finish_reason"] == "length"
    shorter = build_server(max_output_tokens=7).post(path, {**body, "max_tokens": 3}).json()
    assert shorter["usage"]["completion_tokens"] == 3


def test_too_many_choices_are_refused_before_they_are_made(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framework.server.convert.Prompt", None)
    answer = server.post(TEXT, {"prompt": ["a"] * 2000, "n": 128})
    assert answer.status_code == 400
    assert "n: got 256000 choices in all" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "param"), [(TEXT, "prompt"), (CHAT, "messages"), ("tokens", "prompt")]
)
def test_what_can_never_fit_is_not_tokenised(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str, param: str
) -> None:
    monkeypatch.setattr(ByteTokenizer, "encode", None)
    text = "é" * (256 * 128 // 2 + 1)
    body: dict[str, Any] = {"prompt": [1] * 257 if path == "tokens" else text}
    body["messages"] = [{"role": "user", "content": text}]
    answer = server.post(TEXT if path == "tokens" else path, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["message"].startswith(f"{param}: got {257 if path == 'tokens' else 256 * 128 + 2}")


@pytest.mark.parametrize("first", [1, 2])
def test_the_name_of_an_unfinished_call_is_taken_however_many_choices(first: int) -> None:
    for name, n in (("a", 1), ("a", 2), ("a-0", 1)):
        later = {"prompt": "y", "n": n, "headers": {"X-Request-Id": name}}
        is_free = name == "a-0" and first == 1
        answer = while_one_runs(build_server(), later, n=first)
        assert answer.status_code == (200 if is_free else 409)
