"""Clients that leave end what was done for them; an engine that dies ends every answer."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.standin import build_server

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from tests.server.standin import Server

TEXT = "/v1/completions"


async def leave(
    server: Server,
    body: dict[str, Any],
    sent: list[Any],
    has_begun: Callable[[], bool] | None = None,
) -> None:
    """Call the app, and hang up once it has begun to work: by default, once its engine has."""
    head = [(b"content-type", b"application/json"), (b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": TEXT, "headers": head, "query_string": b""}
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
    ]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        while not (has_begun() if has_begun else server.engine.front.has_live):
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await asyncio.wait_for(server.app(scope, receive, send), 5)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_early_ends_its_requests(server: Server, stream: bool) -> None:
    server.engine.is_paused = True
    asyncio.run(leave(server, {"prompt": "x", "n": 3, "stream": stream}, []))
    assert not server.engine.front.has_live
    assert server.desk.num_unfinished == 0
    ended = 'vllm:request_success_total{finished_reason="abort",model_name="scripted"}'
    assert server.metric(ended) == 3


def test_a_client_that_leaves_its_stream_ends_its_request(server: Server) -> None:
    sent: list[Any] = []

    async def after_some() -> None:
        leaving = leave(server, {"prompt": "x", "stream": True, "max_tokens": 200}, sent)
        await leaving

    asyncio.run(after_some())
    assert not server.engine.front.has_live
    assert not any(message.get("body", b"").endswith(b"[DONE]\n\n") for message in sent)


def test_an_engine_that_dies_ends_an_answer_with_503(server: Server) -> None:
    async def die(client: httpx.AsyncClient) -> httpx.Response:
        server.engine.is_paused = True
        running = asyncio.create_task(client.post(TEXT, json={"prompt": "x", "n": 2}))
        while not server.desk.num_unfinished:
            await asyncio.sleep(0)
        server.engine.failure = "killed by SIGKILL"
        return await running

    answer = server.run(die)
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "killed by SIGKILL"
    assert server.desk.num_unfinished == 0
    ended = 'vllm:request_success_total{finished_reason="error",model_name="scripted"}'
    assert server.metric(ended) == 2


def test_an_engine_that_dies_mid_stream_ends_it_with_an_error(server: Server) -> None:
    steps = server.engine.front.core.step

    def step() -> Any:
        if server.engine.front.core.scheduler.counters.num_steps >= 3:
            server.engine.failure = "killed by SIGKILL"
        return steps()

    server.engine.front.core.step = step
    answer = server.post(TEXT, {"prompt": "x", "stream": True})
    assert answer.status_code == 200
    last = answer.text.strip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_dead"


def test_health_tells_why_an_engine_is_dead(server: Server) -> None:
    assert server("GET", "/health").json() == {"status": "ok"}
    server.engine.failure = "killed by SIGKILL"
    answer = server("GET", "/health")
    assert answer.status_code == 503
    assert answer.json() == {"status": "dead", "reason": "killed by SIGKILL"}
    answer = server.post(TEXT, {"prompt": "x"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_health_tells_of_a_restart_and_when_to_come_back() -> None:
    server = build_server(restarts=True)
    server.engine.failure = "killed by SIGKILL"
    answer = server("GET", "/health")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json() == {"status": "restarting", "reason": "killed by SIGKILL"}


def test_health_tells_of_a_pause_and_of_silence(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.engine.is_paused = True
    answer = server("GET", "/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "paused"})
    monkeypatch.setattr("framework.server.health.SILENCE_S", 0.05)
    server.engine.is_slow = True
    answer = server("GET", "/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "busy")
    server.engine.silence_s = 3.0
    answer = server("GET", "/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "silent")


def test_a_client_that_leaves_while_its_text_waits_for_the_tokenizer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def submit(_: object, __: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(type(server.engine), "submit", submit)
    asyncio.run(leave(server, {"prompt": "x"}, [], lambda: server.desk.num_unfinished > 0))
    assert server.desk.num_unfinished == 0
