"""Web pages ask through a browser: allowed where they are named, never for admin calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.server.standin import build_server

if TYPE_CHECKING:
    from tests.server.standin import Server

PAGE = "https://chat.example"
TEXT = "/v1/completions"


def first_question(server: Server, origin: str) -> tuple[int, str | None]:
    """What a browser asks before a page's call: status, and who is let in."""
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    headers["Access-Control-Request-Headers"] = "authorization, content-type, x-stainless-os"
    answer = server("OPTIONS", TEXT, headers=headers)
    return answer.status_code, answer.headers.get("access-control-allow-origin")


def test_no_page_is_let_in_unless_it_is_named() -> None:
    assert first_question(build_server(), PAGE)[1] is None
    server = build_server(cors_origins=(PAGE,), api_key="secret")
    assert first_question(server, PAGE) == (200, PAGE)
    assert first_question(server, "https://evil.example") == (400, None)


def test_a_page_reads_answers_and_errors() -> None:
    server = build_server(cors_origins=(PAGE,))
    for body, status in (({"prompt": "x"}, 200), ({"prompt": ""}, 400)):
        answer = server.post(TEXT, body, headers={"Origin": PAGE})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE


def test_a_page_that_is_let_in_makes_no_admin_calls() -> None:
    server = build_server(cors_origins=("*",))
    assert server.admin("POST", "pause", Origin=PAGE).status_code == 403


def test_a_stream_is_not_held_up_by_a_proxy(server: Server) -> None:
    answer = server.post(TEXT, {"prompt": "x", "stream": True})
    assert answer.headers["x-accel-buffering"] == "no"
