"""Connections of clients that say nothing, or half of what they began; too many of them."""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("uvicorn")

from framework.server import connections
from tests.server.listening import serving

if TYPE_CHECKING:
    import httpx

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
BODY = b'{"prompt": "x", "max_tokens": 2}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


async def said(client: httpx.AsyncClient, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """What the server answers to parts, until it closes the connection, even while they come."""
    url = client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(pause_s)
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.fixture
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE_S", 0.3)


@pytest.mark.usefixtures("_in_a_hurry")
@pytest.mark.parametrize("begun", [b"", HEAD, WHOLE[:-1]])
def test_who_does_not_go_on_is_cut_off(begun: bytes, caplog: pytest.LogCaptureFixture) -> None:
    assert serving(lambda client, *_: said(client, begun)) == b""
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.usefixtures("_in_a_hurry")
def test_headers_that_take_too_long_are_cut_off() -> None:
    get = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert serving(lambda client, *_: said(client, get)).startswith(b"HTTP/1.1 200 OK")
    parts = [get[:-5], *(bytes([each]) for each in get[-5:])]
    assert serving(lambda client, *_: said(client, *parts, pause_s=0.1)) == b""


@pytest.mark.usefixtures("_in_a_hurry")
def test_a_body_that_goes_on_is_waited_for() -> None:
    places = range(len(WHOLE) - 6, len(WHOLE))
    parts = [WHOLE[: places[0]], *(WHOLE[place : place + 1] for place in places), b"GET"]
    answer = serving(lambda client, *_: said(client, *parts, pause_s=0.1))
    assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.usefixtures("_in_a_hurry")
def test_an_answer_may_take_longer() -> None:
    async def work(client: httpx.AsyncClient, _: Any, engine: Any) -> int:
        engine.is_paused = True
        asyncio.get_running_loop().call_later(1.0, setattr, engine, "is_paused", False)
        return (await client.post("/v1/completions", json={"prompt": "x"})).status_code

    assert serving(work) == 200


def test_one_connection_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 1)

    async def work(client: httpx.AsyncClient, *_: Any) -> tuple[int, bytes]:
        status = (await client.get("/health")).status_code
        return status, await said(client)

    status, refused = serving(work)
    assert (status, refused) == (200, connections.FULL)


def test_as_many_connections_as_there_are_files_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for num_files, expected in ((1024, 384), (1 << 20, 4096), (resource.RLIM_INFINITY, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, num=num_files: (num, num))
        assert connections.most_connections() == expected


def test_the_limit_of_files_is_raised_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: given.append(limits))
    for hard in (2000, 1 << 20):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (1024, hard))
        connections.raise_file_limit()
    assert given == [(2000, 2000), (connections.WANTED_FILES, 1 << 20)]


def test_a_lack_of_files_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    told = {"message": "socket.accept() out of system resource", "exception": OSError("files")}
    with caplog.at_level(logging.ERROR):
        for _ in range(100):
            connections.handle_quietly(loop, dict(told))
        connections.handle_quietly(loop, {"message": "another"})
    loop.close()
    assert [each.getMessage() for each in caplog.records] == [
        "no connection can be accepted: files",
        "another",
    ]
