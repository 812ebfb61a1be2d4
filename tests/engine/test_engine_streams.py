"""Streams of an engine's process: slow readers, readers that leave, text, pauses and swaps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import framework
from framework.engine.client import AsyncEngine
from framework.engine.prompts import Prompt
from framework.errors import HeadwayError, PluginError, RequestError
from framework.sampling import SamplingParams
from tests.engine.engine_peers import prompt, scripted, scripted_directory, tokens_of

Scene: TypeAlias = Callable[[AsyncEngine], Coroutine[Any, Any, None]]
Play: TypeAlias = Callable[[Scene], None]
ENDLESS = 100_000
MOST = 60
FILE_PLUGIN = """
from framework import hookimpl
class Shortest:
    @hookimpl
    def order_waiting(self, request):
        return request.num_prompt_tokens
"""
REFUSING_PLUGIN = """
from framework import hookimpl
class Refusing:
    @hookimpl
    def request_arrived(self, request):
        raise OSError("oh")
"""
CLOCK_PLUGIN = """
import itertools, time
from framework import hookimpl
class Jumping:
    def __init__(self):
        jumps = itertools.count(0, -3600)
        time.time = lambda: float(next(jumps))
    @hookimpl
    def step_planned(self):
        time.time()
"""


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """Runs a scene with one engine, which must be quiet afterwards."""
    settings = scripted(scripted_directory(tmp_path_factory.mktemp("streams")))
    with asyncio.Runner() as runner:
        engine = runner.run(AsyncEngine.start(settings, max_num_requests=MOST))
        yield lambda scene: runner.run(asyncio.wait_for(checked(scene, engine), 60))
        runner.run(engine.close())


async def checked(scene: Scene, engine: AsyncEngine) -> None:
    try:
        await scene(engine)
    finally:
        for stream in list(engine._deliveries._streams.values()):
            await stream.aclose()
    await wait_quiet(engine)
    assert engine.num_unfinished == 0


async def wait_quiet(engine: AsyncEngine) -> None:
    patience = time.monotonic() + 10
    while True:
        stats = await engine.stats()
        if not stats.num_running + stats.num_waiting:
            assert stats.num_free_blocks == stats.num_total_blocks
            return
        assert time.monotonic() < patience
        await asyncio.sleep(0.02)


def test_submit_waits_while_too_many_are_unfinished(play: Play) -> None:
    async def scene(engine: AsyncEngine) -> None:
        streams = [await engine.submit(prompt(ENDLESS)) for _ in range(MOST)]
        waiting = asyncio.create_task(engine.submit(prompt(5, "waiting")))
        given_up = asyncio.create_task(engine.submit(prompt(5, "given up")))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        given_up.cancel()
        await streams[7].aclose()
        assert (await (await waiting).finish()).token_ids == tokens_of("waiting", 5)
        for stream in streams:
            await stream.aclose()

    play(scene)


def test_room_is_given_back_by_what_is_refused(play: Play) -> None:
    async def scene(engine: AsyncEngine) -> None:
        for _ in range(MOST):
            with pytest.raises(RequestError, match="cannot be sent"):
                await engine.submit(prompt(5, priority=2**70))
            with pytest.raises(RequestError, match="cannot be sent"):
                await engine.submit(prompt(5, "\ud800"))
        wrong = Prompt(prompt="a", sampling_params=SamplingParams(logprobs=10**9))
        for _ in range(MOST):
            completion = await (await engine.submit(wrong)).finish()
            assert completion.finish_reason == "rejected"
            assert "logprobs: got 1000000000" in (completion.error or "")
        await asyncio.wait_for(engine.submit(prompt(5)), 5)

    play(scene)


def test_a_slow_reader_gets_merged_pieces(play: Play) -> None:
    async def scene(engine: AsyncEngine) -> None:
        stream = await engine.submit(prompt(1000, "slow"))
        first = await anext(stream)
        while stream.completion is None:
            await asyncio.sleep(0.01)
        pieces = [first] + [piece async for piece in stream]
        assert len(pieces) == 2
        assert sum((piece.token_ids for piece in pieces), ()) == tokens_of("slow", 1000)
        assert "".join(piece.text for piece in pieces) == stream.completion.text

    play(scene)


def test_a_reader_that_is_cancelled_ends_its_request(play: Play) -> None:
    async def scene(engine: AsyncEngine) -> None:
        stream = await engine.submit(prompt(ENDLESS))
        reader = asyncio.create_task(stream.finish())
        await asyncio.sleep(0.1)
        reader.cancel()
        await asyncio.wait([reader])
        await wait_quiet(engine)
        assert stream.completion is not None
        assert stream.completion.finish_reason == "abort"

    play(scene)


def test_a_stream_may_be_left_twice_and_read_after_its_end(play: Play) -> None:
    async def scene(engine: AsyncEngine) -> None:
        stream = await engine.submit(prompt(5))
        assert [piece async for piece in stream][-1].finish_reason == "length"
        assert [piece async for piece in stream] == []
        await stream.aclose()
        left = await engine.submit(prompt(ENDLESS))
        await left.aclose()
        await left.aclose()
        assert [piece async for piece in left] == []
        assert (await left.finish()).finish_reason == "abort"
        assert not await engine.abort(left.request_id)

    play(scene)


def test_two_readers_of_a_stream_share_its_pieces(play: Play) -> None:
    async def scene(engine: AsyncEngine) -> None:
        stream = await engine.submit(prompt(500, "shared"))

        async def read() -> list[int]:
            return [token async for piece in stream for token in piece.token_ids]

        found = await asyncio.gather(read(), read())
        assert sorted([*found[0], *found[1]]) == sorted(tokens_of("shared", 500))

    play(scene)


@pytest.mark.parametrize("pause_s", [0.0, 0.01], ids=["at once", "slowly"])
def test_text_comes_as_it_is_when_decoded_at_once(play: Play, pause_s: float) -> None:
    async def scene(engine: AsyncEngine) -> None:
        streams = [await engine.submit(prompt(120, f"text {number}")) for number in range(20)]
        for number, stream in enumerate(streams):
            text = ""
            async for piece in stream:
                text += piece.text
                await asyncio.sleep(pause_s)
            assert engine.tokenizer is not None
            assert text == engine.tokenizer.decode(tokens_of(f"text {number}", 120))

    play(scene)


@pytest.mark.parametrize("pause_s", [0.0, 0.02], ids=["at once", "slowly"])
def test_a_stop_string_ends_the_text_wherever_pieces_are_cut(play: Play, pause_s: float) -> None:
    async def scene(engine: AsyncEngine) -> None:
        assert engine.tokenizer is not None
        for number in range(10):
            whole = engine.tokenizer.decode(tokens_of(f"stop {number}", 300))
            stop = whole[60 + number : 64 + number]
            stream = await engine.submit(prompt(300, f"stop {number}", stop=[stop]))
            text = ""
            async for piece in stream:
                text += piece.text
                await asyncio.sleep(pause_s)
            assert text == whole[: whole.index(stop)]
            assert (piece.finish_reason, piece.stop_reason) == ("stop", stop)

    play(scene)


def test_a_paused_engine_accepts_and_goes_on_where_it_stood(play: Play) -> None:
    async def scene(engine: AsyncEngine) -> None:
        before = await engine.submit(prompt(3000, "before"))
        await anext(before)
        await engine.pause()
        after = await engine.submit(prompt(5, "after"))
        await engine.pause()
        stats = await engine.stats()
        await asyncio.sleep(0.1)
        assert stats.is_paused
        assert (await engine.stats()).counters["num_steps"] == stats.counters["num_steps"]
        assert not await engine.reset_prefix_cache()
        await engine.resume()
        assert (await before.finish()).token_ids == tokens_of("before", 3000)
        assert (await after.finish()).token_ids == tokens_of("after", 5)
        assert await engine.reset_prefix_cache()

    play(scene)


def test_policies_are_swapped_under_load_and_nothing_is_lost(play: Play, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE_PLUGIN, encoding="utf-8")
    (tmp_path / "refusing.py").write_text(REFUSING_PLUGIN, encoding="utf-8")

    async def scene(engine: AsyncEngine) -> None:
        streams = [await engine.submit(prompt(400, f"s{number}")) for number in range(50)]
        readers = [asyncio.create_task(stream.finish()) for stream in streams]
        for plugins, last in ((["priority"], "priority"), ([f"{tmp_path}/mine.py:Shortest"], None)):
            await asyncio.sleep(0.05)
            assert last in (None, (await engine.swap(plugins))[-1])
        assert not readers[-1].done()
        for plugins in (["priorty"], [f"{tmp_path}/refusing.py:Refusing"], ["fcfs", "fcfs"]):
            with pytest.raises(HeadwayError):
                await engine.swap(plugins)
        for number, reader in enumerate(readers):
            assert (await reader).token_ids == tokens_of(f"s{number}", 400)

    play(scene)


def test_calls_that_fail_leave_the_front_with_ears(play: Play, tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text("raise SystemExit('bye')", encoding="utf-8")

    async def scene(engine: AsyncEngine) -> None:
        with pytest.raises(PluginError, match="no_such"):
            await engine.swap(["no_such"])
        with pytest.raises(HeadwayError, match="bye"):
            await engine.swap([f"{tmp_path}/ending.py:Ending"])
        call = asyncio.create_task(engine.stats())
        await asyncio.sleep(0)
        call.cancel()
        assert await engine.plugins()

    play(scene)


def test_a_wall_clock_that_goes_backwards_is_not_looked_at(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clock.py").write_text(CLOCK_PLUGIN, encoding="utf-8")
    wall = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(wall)))

    async def scene(engine: AsyncEngine) -> None:
        await engine.swap([f"{tmp_path}/clock.py:Jumping"])
        lines = [(await (await engine.submit(prompt(50))).finish()).timings for _ in range(5)]
        for line in lines:
            seconds = [line.queueing_s, line.ttft_s, line.finish - line.arrival, *line.gaps]
            assert all(one is not None and 0 <= one < 10 for one in seconds)

    play(scene)


def test_no_part_between_front_and_engine_reads_the_wall_clock() -> None:
    root = Path(framework.__file__).parent
    files = [*root.glob("*.py"), *(root / "engine").glob("*.py")]
    assert [path.name for path in files if "time.time(" in path.read_text(encoding="utf-8")] == []
