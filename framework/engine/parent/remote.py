"""ProcessFront: the calls of `LLM` over an engine in a process of its own, without asyncio outside.

An event loop in a thread of its own holds the AsyncEngine; every call is handed over to it.
"""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field

from framework.engine.client import AsyncEngine
from framework.errors import HeadwayError, RequestError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from framework.engine.completion import Completion
    from framework.engine.parent.streams import Stream
    from framework.engine.prompts import Prompt
    from framework.engine.settings import EngineSettings
    from framework.engine.tokenizer import Tokenizer

T = TypeVar("T")


@define(eq=False)
class ProcessFront:
    """A front for callers that block, over one engine process.

    Args:
        settings: what the engine loads.

    Raises:
        ModelError, PluginError, ConfigError, EngineDeadError: see `AsyncEngine.start`.
    """

    settings: EngineSettings
    engine: AsyncEngine = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.new_event_loop, init=False)
    _thread: Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = Thread(target=self._loop.run_forever, name="headway-front", daemon=True)
        self._thread.start()
        try:
            self.engine = self._call(AsyncEngine.start(self.settings))
        except BaseException:
            self._end_loop()
            raise

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Of the engine's model."""
        return self.engine.tokenizer

    def answer(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Answer prompts; they all arrive now. A request that fails alone says so in its `error`.

        Raises:
            RequestError: a prompt is refused; all of them are given up.
            EngineDeadError: the engine ended.
        """
        return self._call(self._answer(prompts))

    async def _answer(self, prompts: Sequence[Prompt]) -> list[Completion]:
        streams: list[Stream] = []
        try:
            for prompt in prompts:
                streams.append(await self.engine.submit(prompt))
            completions = [await stream.finish() for stream in streams]
        finally:
            for stream in streams:
                await stream.aclose()
        for prompt, completion in zip(prompts, completions, strict=True):
            if completion.finish_reason == "rejected":
                raise RequestError(f"{prompt.where}: {completion.error}")
        return completions

    def stream_text(self, prompt: Prompt) -> Iterator[str]:
        """Answer one prompt piece by piece; it is aborted if nobody listens.

        Raises:
            RequestError: it is refused.
            HeadwayError: it failed, or the engine ended.
        """
        stream = self._call(self.engine.submit(prompt))
        return self._pieces(stream)

    def _pieces(self, stream: Stream) -> Iterator[str]:
        try:
            while (piece := self._call(anext(stream, None))) is not None:
                if piece.text:
                    yield piece.text
                if piece.error is not None:
                    raise HeadwayError(piece.error)
        finally:
            self._call(stream.aclose())

    def swap(self, plugins: Sequence[Any]) -> list[str]:
        """Put another stack in place of the running one; see `AsyncEngine.swap`."""
        return self._call(self.engine.swap(plugins))

    def close(self) -> None:
        """End the engine and its process."""
        if self._loop.is_running():
            self._call(self.engine.close())
            self._end_loop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._loop.is_running():
            work.close()
            raise HeadwayError("this LLM is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
