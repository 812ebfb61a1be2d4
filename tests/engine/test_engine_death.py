"""Ends of an engine's process, told and untold, and what is left of it: nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from framework.engine.client import AsyncEngine
from framework.engine.parent import link
from framework.errors import (
    ConfigError,
    EngineDeadError,
    HeadwayError,
    ModelError,
    PluginError,
)
from tests.engine.engine_peers import (
    folder_of,
    is_running,
    prompt,
    scripted,
    scripted_directory,
    tokens_of,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from framework.engine.parent.streams import Stream

ROOT = Path(__file__).parents[2]
ENDLESS = 900_000
SCRIPT = """
import asyncio, sys
from framework.engine.client import AsyncEngine
from framework.engine.settings import EngineSettings

async def main():
    engine = await AsyncEngine.start(EngineSettings(model={model!r}, runner="scripted"))
    print(engine.pid, engine._link._process.folder, flush=True)
    {then}

{guard}asyncio.run(main())
"""
GUARD = "if __name__ == '__main__': "


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted_directory(tmp_path_factory.mktemp("death"))


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every test leaves neither a child nor a folder."""
    (tmp_path / "t").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    yield
    assert list((tmp_path / "t").iterdir()) == []


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


async def read_until_death(stream: Stream) -> tuple[str, float]:
    with pytest.raises(EngineDeadError) as caught:
        async for _ in stream:
            pass
    return str(caught.value), time.monotonic()


async def started(engine: AsyncEngine, count: int) -> list[Stream]:
    """Streams that have begun, the last one excepted: of that nobody has read."""
    streams = [await engine.submit(prompt(ENDLESS)) for _ in range(count)]
    for stream in streams[:-1]:
        await anext(stream)
    return streams


def test_a_killed_engine_ends_every_stream_and_call_and_another_one_serves(
    directory: Path,
) -> None:
    run(kill_and_go_on(directory))


async def kill_and_go_on(directory: Path) -> None:
    small = scripted(directory, num_blocks=200_000)
    async with await AsyncEngine.start(small, restart=True, max_num_requests=8) as engine:
        await engine.swap(["priority"])
        streams, pid = await started(engine, 8), engine.pid
        waiting = asyncio.create_task(engine.submit(prompt(5)))
        call = asyncio.create_task(engine.stats())
        await asyncio.sleep(0)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        ends = await asyncio.gather(*map(read_until_death, streams))
        assert {why for why, _ in ends} == {"the engine process was killed by SIGKILL"}
        assert max(at for _, at in ends) - began < 2
        assert (engine.is_alive, engine.num_unfinished) == (False, 0)
        for task in (waiting, call):
            await check_dead_or_done(task)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            await engine.submit(prompt(5))
        while not engine.is_alive:
            await asyncio.sleep(0.05)
        completion = await (await engine.submit(prompt(5, "later"))).finish()
        assert completion.token_ids == tokens_of("later", 5)
        assert (engine.num_restarts, engine.failure) == (1, None)
        assert (await engine.plugins())[-1] == "priority"
        assert engine.pid != pid
        await fail_to_start_again(engine, directory / "config.json")
    assert not is_running(pid)


async def fail_to_start_again(engine: AsyncEngine, needed: Path) -> None:
    text = needed.read_text(encoding="utf-8")
    needed.unlink()
    os.kill(engine.pid, signal.SIGKILL)
    while "could not be started again" not in (engine.failure or ""):
        await asyncio.sleep(0.05)
    failure = engine.failure
    assert "config.json" in failure
    needed.write_text(text, encoding="utf-8")
    while not engine.is_alive:
        assert engine.failure == failure
        await asyncio.sleep(0.05)
    assert engine.num_restarts == 2


async def check_dead_or_done(task: asyncio.Task[Any]) -> None:
    try:
        await task
    except EngineDeadError as error:
        assert "SIGKILL" in str(error)


def test_a_stopped_engine_is_taken_for_dead(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "SILENCE_S", 1.5)
    run(stop_it(directory))


async def stop_it(directory: Path) -> None:
    engine = await AsyncEngine.start(scripted(directory))
    streams, pid = await started(engine, 2), engine.pid
    os.kill(pid, signal.SIGSTOP)
    call = asyncio.create_task(engine.stats())
    why, _ = await read_until_death(streams[0])
    assert why == "the engine has been silent for 1.5 s"
    assert engine.failure == why
    with pytest.raises(EngineDeadError, match="silent"):
        await call
    began = time.monotonic()
    await engine.close()
    assert time.monotonic() - began < 2
    assert not is_running(pid)


def test_a_front_that_stands_still_does_not_take_its_engine_for_dead(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "SILENCE_S", 1.5)
    run(stand_still(directory))


async def stand_still(directory: Path) -> None:
    async with await AsyncEngine.start(scripted(directory)) as engine:
        stream = await engine.submit(prompt(2000, "x"))
        await asyncio.sleep(0.5)
        time.sleep(3.5)
        assert (await stream.finish()).token_ids == tokens_of("x", 2000)
        await asyncio.sleep(1.2)
        assert engine.is_alive


def test_sigterm_is_an_orderly_end(directory: Path) -> None:
    run(terminate(directory))


async def terminate(directory: Path) -> None:
    engine = await AsyncEngine.start(scripted(directory))
    streams, folder = await started(engine, 2), folder_of(engine)
    await engine.stats()  # an answer, so the engine has both
    os.kill(engine.pid, signal.SIGTERM)
    while (late := await (await engine.submit(prompt(5))).finish()).error is None:
        pass
    assert (late.finish_reason, late.error) == ("abort", "the engine is shutting down")
    assert [stream.completion for stream in streams] == [None, None]
    os.kill(engine.pid, signal.SIGTERM)
    completions = [await stream.finish() for stream in streams]
    assert {one.finish_reason for one in completions} == {"abort"}
    assert {one.error for one in completions} == {"the engine was shut down"}
    while engine.is_alive:
        await asyncio.sleep(0.01)
    assert engine.failure == "the engine stopped: it was shut down"
    await asyncio.to_thread(within, 5, lambda: not folder.exists())
    await engine.close()
    await engine.close()
    with pytest.raises(EngineDeadError, match="shut down"):
        await engine.submit(prompt(5))


def test_an_engine_that_drains_ends_what_it_has_and_takes_no_more(directory: Path) -> None:
    run(drain(directory))


async def drain(directory: Path) -> None:
    engine = await AsyncEngine.start(scripted(directory))
    streams = [await engine.submit(prompt(3000, f"r{number}")) for number in range(3)]
    await engine.pause()  # a pause must not keep an engine from its end
    closing = asyncio.create_task(engine.close(drain=True))
    await asyncio.sleep(0)
    late = await (await engine.submit(prompt(5))).finish()
    assert (late.finish_reason, late.error) == ("abort", "the engine is shutting down")
    for number, stream in enumerate(streams):
        assert (await stream.finish()).token_ids == tokens_of(f"r{number}", 3000)
    await closing
    with pytest.raises(EngineDeadError):
        await engine.submit(prompt(5))


def test_closing_ends_open_streams_with_an_error(directory: Path) -> None:
    run(close_open(directory))


async def close_open(directory: Path) -> None:
    engine = await AsyncEngine.start(scripted(directory))
    streams, call = await started(engine, 3), asyncio.create_task(engine.stats())
    await asyncio.sleep(0)
    await engine.close()
    for why, _ in await asyncio.gather(*map(read_until_death, streams)):
        assert why == "the engine was closed"
    with pytest.raises(EngineDeadError, match="closed"):
        await call
    with pytest.raises(EngineDeadError, match="closed"):
        await engine.submit(prompt(5))


@pytest.mark.parametrize(
    ("kind", "words", "wrong"),
    [
        (ModelError, "no_such_model", {"model": "no_such_model"}),
        (PluginError, "priorty.*did you mean|Did you mean", {"plugins": ["priorty"]}),
        (PluginError, "no such runner", {"runner": "none"}),
        (ConfigError, "block_size", {"block_size": -1}),
        (EngineDeadError, "ended with exit code 7", {"plugins": ["{dir}/leaving.py:Leaving"]}),
        (PluginError, "OSError: oh", {"plugins": ["{dir}/broken.py:Broken"]}),
        (PluginError, "cannot be set up.*scheduler_built", {"plugins": ["{dir}/late.py:Late"]}),
    ],
)
def test_what_keeps_an_engine_from_starting_is_told(
    directory: Path, tmp_path: Path, kind: type[HeadwayError], words: str, wrong: dict[str, Any]
) -> None:
    (tmp_path / "leaving.py").write_text("import os\nos._exit(7)\n")
    (tmp_path / "broken.py").write_text("raise OSError('oh')\n")
    (tmp_path / "late.py").write_text(LATE)
    wrong = {
        **wrong,
        "plugins": [str(one).format(dir=tmp_path) for one in wrong.get("plugins", [])],
    }
    settings = scripted(wrong.pop("model", directory), **wrong)
    with pytest.raises(kind, match=words):
        run(AsyncEngine.start(settings))


LATE = """
from framework import hookimpl
class Late:
    @hookimpl
    def scheduler_built(self, setup):
        raise OSError("oh")
"""


class Unsendable:
    """A plugin instance that cannot be pickled."""

    name = "unsendable"

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle it")


def test_an_instance_that_cannot_be_sent_is_told(directory: Path) -> None:
    with pytest.raises(PluginError, match="cannot pickle it; name the plugin instead"):
        run(AsyncEngine.start(scripted(directory, plugins=[Unsendable()])))


def test_a_start_that_is_given_up_leaves_nothing(directory: Path) -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(AsyncEngine.start(scripted(directory)), 0.3))


def script(tmp_path: Path, directory: Path, then: str, guard: str = GUARD) -> subprocess.Popen[str]:
    """A script that starts an engine, prints its pid, and goes on with `then`."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(model=str(directory), then=then, guard=guard), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "t"), "PYTHONPATH": str(ROOT)},
    )


def test_an_engine_ends_with_its_parent(directory: Path, tmp_path: Path) -> None:
    with script(tmp_path, directory, "await asyncio.sleep(60)") as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        assert is_running(pid)
        parent.kill()
    within(5, lambda: not is_running(pid))
    within(1, lambda: not list((tmp_path / "t").iterdir()))


def test_a_script_that_just_ends_leaves_nothing(directory: Path, tmp_path: Path) -> None:
    with script(tmp_path, directory, "sys.exit(3)") as parent:
        out, _ = parent.communicate(timeout=60)
    assert parent.returncode == 3
    assert not is_running(int(out.split()[0]))


def test_a_script_without_a_guard_is_told(directory: Path, tmp_path: Path) -> None:
    with script(tmp_path, directory, "return", guard="") as parent:
        _, errors = parent.communicate(timeout=60)
    assert parent.returncode == 1
    assert "needs `if __name__ == '__main__':`" in errors.strip().splitlines()[-1]
