"""The admin calls, and whom they do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.standin import build_server

if TYPE_CHECKING:
    import httpx

    from tests.server.standin import Server

BASE = ["kv_blocks", "chunked_prefill"]


def test_a_swap_tells_the_old_stack_and_the_new_one(server: Server) -> None:
    answer = server.post("/admin/swap", {"plugins": ["priority"]}).json()
    assert answer == {"old": [*BASE, "fcfs"], "new": [*BASE, "priority"]}
    assert server("GET", "/admin/plugins").json() == {"plugins": [*BASE, "priority"]}


def test_a_stack_that_fails_leaves_the_old_one(server: Server) -> None:
    answer = server.post("/admin/swap", {"plugins": ["priorty"]})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "plugin_error"
    assert "Did you mean 'priority'" in answer.json()["error"]["message"]
    assert server("GET", "/admin/plugins").json() == {"plugins": [*BASE, "fcfs"]}


def test_the_fields_of_a_swap_are_checked(server: Server) -> None:
    assert server.post("/admin/swap", {"plugin": ["fcfs"]}).status_code == 400
    assert server.post("/admin/swap", {"plugins": "fcfs"}).status_code == 400


def test_pause_resume_and_reset(server: Server) -> None:
    assert server("POST", "/admin/pause").json() == {"is_paused": True}
    assert server.engine.is_paused
    assert server("POST", "/admin/resume").json() == {"is_paused": False}
    assert server("POST", "/admin/reset_prefix_cache").json() == {"was_reset": True}


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ({"Host": "evil.example"}, "Host"),
        ({"Host": "localhost.evil.example:80"}, "Host"),
        ({"Origin": "http://localhost"}, "Origin"),
        ({"Origin": "null"}, "Origin"),
        ({"X-Forwarded-For": "127.0.0.1"}, "X-Forwarded-For"),
        ({"Via": "1.1 proxy"}, "Via"),
    ],
)
def test_without_a_key_no_web_page_and_no_proxy_gets_in(
    server: Server, headers: dict[str, str], word: str
) -> None:
    answer = server.post("/admin/swap", {"plugins": ["priority"]}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"]["message"].startswith(word)


def test_without_a_key_no_other_machine_gets_in(server: Server) -> None:
    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.get("/admin/plugins")

    assert server.run(ask, peer="192.0.2.7").status_code == 403
    assert server.run(ask, peer="::1").status_code == 200


def test_with_a_key_it_is_the_key_that_counts() -> None:
    server = build_server(api_key="secret")
    assert server("GET", "/admin/plugins").status_code == 401
    headers = {"Authorization": "Bearer secret", "Host": "server.example"}
    assert server("GET", "/admin/plugins", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "[::1]:8000", "localhost", "LOCALHOST:1"])
def test_loopback_hosts_get_in(server: Server, host: str) -> None:
    assert server("GET", "/admin/plugins", headers={"Host": host}).status_code == 200
