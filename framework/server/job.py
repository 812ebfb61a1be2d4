"""Job: the requests of one call, one a choice, and their pieces as they come in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import define, field

from framework.errors import EngineDeadError
from framework.server.errors import error_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from framework.engine.completion import Completion
    from framework.server.faces import PieceLike, StreamLike
    from framework.server.meter import Course, Meter


@define(eq=False, kw_only=True)
class Job:
    """What runs for one call."""

    meter: Meter
    leave: Callable[[], None]
    _streams: list[StreamLike] = field(factory=list, init=False)
    _courses: list[Course] = field(factory=list, init=False)
    _pumps: list[asyncio.Task[None]] = field(factory=list, init=False)
    _has_ended: list[bool] = field(factory=list, init=False)
    _is_closed: bool = field(default=False, init=False)

    def add(self, stream: StreamLike, course: Course) -> None:
        """One more choice."""
        self._streams.append(stream)
        self._courses.append(course)
        self._has_ended.append(False)

    @property
    def completions(self) -> list[Completion]:
        """What the choices came to; to be asked once `pieces` is at its end."""
        done = [stream.completion for stream in self._streams]
        assert None not in done, "the pieces are not at their end"
        return [completion for completion in done if completion is not None]

    def num_tokens(self, num_choices: int) -> tuple[int, int, int]:
        """(prompt, output, cached) so far; the choices of one source share one prompt."""
        sources = self._streams[::num_choices]
        done = [stream.completion for stream in sources if stream.completion is not None]
        return (
            sum(stream.num_prompt_tokens for stream in sources),
            sum(course.num_tokens for course in self._courses),
            sum(completion.num_cached_tokens for completion in done),
        )

    async def pieces(self) -> AsyncIterator[tuple[int, PieceLike]]:
        """(choice, piece) of all choices as they come.

        Raises:
            ApiError: a request was refused by the engine, or failed there.
            EngineDeadError: the engine is gone.
        """
        try:
            async for item in self._measured():
                yield item
        except EngineDeadError:
            for index in range(len(self._streams)):
                self._end(index, "error")
            raise

    async def _measured(self) -> AsyncIterator[tuple[int, PieceLike]]:
        async for index, piece in self._merged():
            self.meter.took(self._courses[index], piece)
            if piece.finish_reason is not None:
                self._end(index, piece.finish_reason)
            error = error_of(piece)
            if error is not None:
                raise error
            yield index, piece

    async def _merged(self) -> AsyncIterator[tuple[int, PieceLike]]:
        if len(self._streams) == 1:
            async for piece in self._streams[0]:
                yield 0, piece
            return
        # One place: a reader that is slow slows the pumps, and the streams merge what waits.
        queue: asyncio.Queue[tuple[int, PieceLike | BaseException | None]] = asyncio.Queue(1)
        self._pumps = [
            asyncio.create_task(_pump(index, stream, queue))
            for index, stream in enumerate(self._streams)
        ]
        num_open = len(self._pumps)
        while num_open:
            index, item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield index, item

    def _end(self, index: int, reason: str) -> None:
        if not self._has_ended[index]:
            self._has_ended[index] = True
            self.meter.ended(self._courses[index], reason, self._streams[index].completion)

    async def close(self) -> None:
        """Abort what is unfinished, and give the places back."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for pump in self._pumps:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)
            for stream in self._streams:
                await stream.aclose()
        finally:
            for index in range(len(self._streams)):
                self._end(index, "abort")
            self.leave()


async def _pump(
    index: int,
    stream: StreamLike,
    queue: asyncio.Queue[tuple[int, PieceLike | BaseException | None]],
) -> None:
    try:
        async for piece in stream:
            await queue.put((index, piece))
    except Exception as error:
        await queue.put((index, error))
    else:
        await queue.put((index, None))
