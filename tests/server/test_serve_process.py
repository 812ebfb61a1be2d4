"""`headway serve` as a process: signals, a killed engine, swaps, plugins that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("zmq")

import httpx

from framework.server.admin_key import find_key
from tests.server.running import HEADWAY, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEXT = "/v1/completions"
LONG = {"prompt": "x", "max_tokens": 400, "stream": True, "ignore_eos": True}
MINE = """
from framework import hookimpl

class Last:
    @hookimpl
    def select_waiting(self, waiting):
        return max(waiting, key=lambda request: request.arrival_time)
"""


def engine_of(process: subprocess.Popen[str]) -> int:
    """The process id of its engine: the child that was spawned with a pipe."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    lines = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in children}
    (found,) = [pid for pid, line in lines.items() if "spawn_main" in line]
    return found


def events(answer: httpx.Response) -> Iterator[Any]:
    for line in answer.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def wait_for(what: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def health(url: str) -> httpx.Response:
    return httpx.get(f"{url}/health", timeout=10)


@pytest.fixture(scope="module")
def serving(model_directory: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with running(model_directory, "--num-blocks", 64, "--restart") as found:
        yield found


def test_a_swap_under_way_loses_nothing(serving: Any, tmp_path: Path) -> None:
    url, _ = serving
    (tmp_path / "mine.py").write_text(MINE)
    with httpx.stream("POST", url + TEXT, json=LONG, timeout=30) as answer:
        chunks = events(answer)
        next(chunks)
        for stack, told in (("priority", "fcfs -> "), ("fcfs+mine.py:Last", "priority -> ")):
            command = [str(HEADWAY), "swap", stack, "--url", url]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
            assert told in done.stdout
        assert list(chunks)[-1]["choices"][0]["finish_reason"] == "length"
    headers = {"Authorization": f"Bearer {find_key(httpx.URL(url).port or 0)}"}
    plugins = httpx.get(f"{url}/admin/plugins", headers=headers).json()["plugins"]
    assert plugins[-1] == "last"


def test_a_swap_that_fails_exits_with_2(serving: Any) -> None:
    url, _ = serving
    command = [str(HEADWAY), "swap", "priorty", "--url", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'priority'" in done.stderr


def test_a_killed_engine_ends_streams_and_is_started_again(serving: Any) -> None:
    url, process = serving
    with httpx.stream("POST", url + TEXT, json=LONG, timeout=30) as answer:
        chunks = events(answer)
        next(chunks)
        os.kill(engine_of(process), signal.SIGKILL)
        killed = time.monotonic()
        last = list(chunks)[-1]
    assert time.monotonic() - killed < 2
    assert last["error"]["code"] == "engine_dead"
    wait_for(lambda: health(url).status_code == 200)
    body = {"prompt": "x", "max_tokens": 2}
    assert httpx.post(url + TEXT, json=body, timeout=30).status_code == 200


def test_without_restart_the_server_ends_after_its_engine(model_directory: Path) -> None:
    with running(model_directory, "--num-blocks", 64) as (url, process):
        os.kill(engine_of(process), signal.SIGKILL)
        wait_for(lambda: health(url).status_code == 503, 5)
        assert health(url).json()["status"] == "dead"
        assert "SIGKILL" in health(url).json()["reason"]
        answer = httpx.post(url + TEXT, json={"prompt": "x"}, timeout=10)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_dead")
        assert "headway:engine_up" in httpx.get(f"{url}/metrics", timeout=10).text
        assert process.wait(15) == 1
        assert find_key(httpx.URL(url).port or 0) is None


def test_an_engine_that_stands_still_is_told_of(serving: Any) -> None:
    url, process = serving
    engine = engine_of(process)
    os.kill(engine, signal.SIGSTOP)
    try:
        assert (health(url).status_code, health(url).json()["status"]) == (503, "silent")
    finally:
        os.kill(engine, signal.SIGCONT)
    assert health(url).json() == {"status": "ok"}


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
def test_signals_while_the_engine_closes_change_nothing(
    model_directory: Path, first: signal.Signals
) -> None:
    with running(model_directory, "--num-blocks", 64) as (_, process):
        process.send_signal(first)
        for _ in range(100):
            if process.poll() is not None:
                break
            time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
