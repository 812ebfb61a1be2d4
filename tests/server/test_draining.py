"""The end of a server: what runs may end, then it is aborted; where it listened is free again."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("uvicorn")

from framework.errors import ConfigError
from framework.server.room import warn_if_short
from framework.server.serving import Listening, bind, warn_if_open
from framework.server.settings import ServerSettings
from tests.server.listening import serving
from tests.server.standin import build_server

if TYPE_CHECKING:
    import httpx

    from framework.server.serving import DrainingServer

TEXT = "/v1/completions"
LONG = {"prompt": "x", "max_tokens": 50, "stream": True}


async def last_reason(lines: Any) -> str | None:
    """The finish reason of a stream that ends as it should."""
    told = [line async for line in lines if line.startswith("data: ")]
    assert told[-1] == "data: [DONE]"
    reason: str | None = json.loads(told[-2].removeprefix("data: "))["choices"][0]["finish_reason"]
    return reason


def test_a_first_signal_lets_running_requests_end() -> None:
    async def work(client: httpx.AsyncClient, server: DrainingServer, engine: Any) -> Any:
        async with client.stream("POST", TEXT, json=LONG) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            engine.is_paused = True
            server.handle_exit(signal.SIGTERM, None)
            refused = (await client.post(TEXT, json=LONG), await client.get("/health"))
            engine.is_paused = False
            return [each.status_code for each in refused], await last_reason(lines)

    assert serving(work, drain_s=20) == ([503, 503], "length")


@pytest.mark.parametrize(("drain_s", "num_signals"), [(0, 1), (60, 2)])
def test_what_is_left_then_is_aborted(drain_s: float, num_signals: int) -> None:
    async def work(client: httpx.AsyncClient, server: DrainingServer, engine: Any) -> Any:
        async with client.stream("POST", TEXT, json={**LONG, "max_tokens": 200}) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            engine.is_paused = True
            for _ in range(num_signals):
                server.handle_exit(signal.SIGINT, None)
            return server.signal, await last_reason(lines)

    assert serving(work, drain_s) == (signal.SIGINT, "abort")


async def deaf_client(
    client: httpx.AsyncClient, server: DrainingServer, _: object
) -> socket.socket:
    """A client that has asked for more than the buffers on its way hold, and reads nothing."""
    body = json.dumps({**LONG, "max_tokens": 250, "n": 128}).encode()
    head = f"POST {TEXT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect((client.base_url.host, client.base_url.port))
    while not server.server_state.connections:
        await asyncio.sleep(0.01)
    for each in server.server_state.connections:
        own = each.transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    deaf.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await asyncio.sleep(1.5)
    return deaf


def test_a_client_that_reads_nothing_is_cut_off_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("framework.server.serving.LAST_WORDS_S", 0.3)
    serving(deaf_client).close()
    told = [(record.getMessage(), record.exc_info) for record in caplog.records]
    assert told == [("a client has not read its answer, and is cut off", None)]


def test_a_host_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1 port 0"):
        bind(Listening(host="192.0.2.1", port=0))


def test_a_port_is_taken_from_the_start() -> None:
    with bind(Listening(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}: Address already in use"):
            bind(Listening(port=port))


def test_a_pool_that_is_smaller_than_the_model_s_longest_is_warned_about() -> None:
    told = warn_if_short(build_server(num_blocks=9).engine.info)
    assert told is not None and "at most 32 tokens, though the model takes 256" in told
    assert warn_if_short(build_server().engine.info) is None


@pytest.mark.parametrize(
    ("host", "api_key", "is_warned"),
    [("0.0.0.0", None, True), ("0.0.0.0", "key", False), ("127.0.0.1", None, False)],
)
def test_strangers_without_a_key_are_warned_about(
    host: str, api_key: str | None, is_warned: bool
) -> None:
    settings = ServerSettings(model_names=("x",), api_key=api_key)
    told = warn_if_open(Listening(host=host), settings)
    assert (told is not None) is is_warned


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(ServerSettings(model_names=("x",), api_key="secret"))
