"""A server whose engine runs in this process."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from tests.server.standin import Server, build_server


@pytest.fixture
def server() -> Server:
    return build_server()
