"""The admin calls, and whom they do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from framework.errors import ConfigError
from tests.server.standin import ADMIN_KEY, build_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.standin import Server

BASE = ["kv_blocks", "chunked_prefill"]


def test_a_swap_tells_the_old_stack_and_the_new_one(server: Server) -> None:
    answer = server.admin("POST", "swap", {"plugins": ["priority"]}).json()
    assert answer == {"old": [*BASE, "fcfs"], "new": [*BASE, "priority"]}
    assert server.admin("GET", "plugins").json() == {"plugins": [*BASE, "priority"]}


def test_a_stack_that_fails_leaves_the_old_one(server: Server) -> None:
    answer = server.admin("POST", "swap", {"plugins": ["priorty"]})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "plugin_error"
    assert "Did you mean 'priority'" in answer.json()["error"]["message"]
    assert server.admin("GET", "plugins").json() == {"plugins": [*BASE, "fcfs"]}


def test_the_fields_of_a_swap_are_checked(server: Server) -> None:
    assert server.admin("POST", "swap", {"plugin": ["fcfs"]}).status_code == 400
    assert server.admin("POST", "swap", {"plugins": "fcfs"}).status_code == 400


def test_pause_resume_and_reset(server: Server) -> None:
    assert server.admin("POST", "pause").json() == {"is_paused": True}
    assert server.engine.is_paused
    assert server.admin("POST", "resume").json() == {"is_paused": False}
    assert server.admin("POST", "reset_prefix_cache").json() == {"was_reset": True}


def test_web_pages_make_no_admin_calls_even_with_the_key(server: Server) -> None:
    for origin in ("http://localhost", "null"):
        answer = server.admin("POST", "swap", {"plugins": ["priority"]}, Origin=origin)
        assert answer.status_code == 403
        assert answer.json()["error"]["message"].startswith("Origin")


@pytest.mark.parametrize("key", [None, "Bearer secret", "Bearer", "Basic of the admin"])
def test_only_the_admin_key_opens_admin_calls(key: str | None) -> None:
    server = build_server(api_key="secret")
    headers = {} if key is None else {"Authorization": key}
    answer = server("GET", "/admin/plugins", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_admin_key")


def test_the_admin_key_is_no_api_key() -> None:
    server = build_server(api_key="secret")
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    assert server("GET", "/v1/models", headers=headers).status_code == 401
    assert server.admin("GET", "plugins").status_code == 200


def test_without_an_admin_key_there_are_no_admin_calls() -> None:
    answer = build_server(admin_key=None).admin("GET", "plugins")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "admin_forbidden")


def test_one_key_for_clients_and_admins_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"admin_key: got .*another key than api_key"):
        build_server(api_key="same", admin_key="same")


def test_a_plugin_that_exits_is_refused_and_the_old_stack_stays(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit(3)")
    old = server.admin("GET", "plugins").json()
    answer = server.admin("POST", "swap", {"plugins": [f"{tmp_path}/mine.py:Mine"]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "plugin_error")
    assert server.admin("GET", "plugins").json() == old
