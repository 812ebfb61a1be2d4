"""`headway swap`: what it sends, and what becomes of the answers of a server."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from framework.cli.swap import with_absolute_path
from framework.errors import ConfigError
from framework.server.admin_key import find_key, key_file, left_in_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.testing import Result


class Answering(BaseHTTPRequestHandler):
    """Gives the answer that its server holds, and keeps what came."""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.came = (self.path, json.loads(self.rfile.read(length)), dict(self.headers))
        status, body = self.server.answer
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def answering() -> Iterator[Any]:
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url_of(server: Any) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_a_swap_tells_old_and_new(headway: Callable[..., Result], answering: Any) -> None:
    answering.answer = (200, b'{"old": ["kv_blocks", "fcfs"], "new": ["kv_blocks", "vtc"]}')
    result = headway("swap", "kv_blocks+vtc", "--url", url_of(answering), "--admin-key", "secret")
    assert (result.exit_code, result.stdout) == (0, "kv_blocks+fcfs -> kv_blocks+vtc\n")
    path, body, headers = answering.came
    assert (path, body) == ("/admin/swap", {"plugins": ["kv_blocks", "vtc"]})
    assert headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(400, "plugin_error", 2), (401, "invalid_admin_key", 2), (500, "internal_error", 1)],
)
def test_a_refusal_is_one_line(
    headway: Callable[..., Result], answering: Any, status: int, code: str, expected: int
) -> None:
    body = {"error": {"message": "it cannot be", "code": code}}
    answering.answer = (status, json.dumps(body).encode())
    result = headway("swap", "vtc", "--url", url_of(answering))
    assert (result.exit_code, result.stdout) == (expected, "")
    assert result.stderr == "headway: error: it cannot be\n"


def test_something_else_answers(headway: Callable[..., Result], answering: Any) -> None:
    for answer in ((404, b"<html>"), (200, b"<html>")):
        answering.answer = answer
        result = headway("swap", "vtc", "--url", url_of(answering))
        assert result.exit_code == 2
        assert "Headway server" in result.stderr


def test_nobody_answers(headway: Callable[..., Result]) -> None:
    result = headway("swap", "vtc", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert "nobody answers at http://127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("url", ["localhost:8000", "http://localhost:x", "http://localhost:99999"])
def test_an_address_that_is_none(headway: Callable[..., Result], url: str) -> None:
    result = headway("swap", "vtc", "--url", url)
    assert f"url: got {url!r}, allowed: http://HOST:PORT" in result.stderr


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("priority", "priority"),
        ("module.py_one:Name", "module.py_one:Name"),
        ("mine.py:Name", f"{Path.cwd()}/mine.py:Name"),
        ("sub/mine.py:Name(path='x.py:y')", f"{Path.cwd()}/sub/mine.py:Name(path='x.py:y')"),
        ("vtc(path='x.py:y')", "vtc(path='x.py:y')"),
        ("/abs/mine.py:Name", "/abs/mine.py:Name"),
    ],
)
def test_files_are_named_so_that_the_server_finds_them(spec: str, expected: str) -> None:
    assert with_absolute_path(spec) == expected


def test_the_key_of_one_s_own_server_is_found(
    headway: Callable[..., Result],
    answering: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    answering.answer = (200, b'{"old": ["fcfs"], "new": ["vtc"]}')
    with left_in_file("made", answering.server_port):
        file = key_file(answering.server_port)
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert headway("swap", "vtc", "--url", url_of(answering)).exit_code == 0
        assert answering.came[2]["Authorization"] == "Bearer made"
    assert not file.exists()
    assert headway("swap", "vtc", "--url", url_of(answering)).exit_code == 0
    assert "Authorization" not in answering.came[2]


def test_a_server_leaves_the_key_file_of_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with left_in_file("first", 7):
        key_file(7).write_text("second")
    assert find_key(7) == "second"


def test_a_key_file_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="HEADWAY_ADMIN_KEY"), left_in_file("key", 7):
        pass
