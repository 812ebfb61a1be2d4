"""Stream: one request's output as it comes, for one asyncio consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from framework.errors import EngineDeadError

if TYPE_CHECKING:
    from typing import Self

    from framework.engine.completion import Completion, LiveRequest, Piece
    from framework.metrics import Timeline


@define(eq=False)
class Stream:
    """Iterate to get pieces; what a slow reader has not taken yet is merged into one.

    Leaving it unfinished (`aclose`, the end of `async with`, a cancelled iteration) aborts the
    request.

    Attributes:
        key: the front's number for it.
        live: the request as it grows.
    """

    key: int
    live: LiveRequest
    _abort: Callable[[int], None]
    _news: asyncio.Event = field(factory=asyncio.Event)
    _failure: str | None = None
    _is_over: bool = False

    @property
    def request_id(self) -> str:
        """Its name."""
        return self.live.request.request_id

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return self.live.request.num_prompt_tokens

    @property
    def timeline(self) -> Timeline:
        """When things happened, on the machine's monotonic clock, as seen here."""
        return self.live.timeline

    @property
    def completion(self) -> Completion | None:
        """All of it, once it has ended."""
        return self.live.completion

    def wake(self) -> None:
        """There is something new."""
        self._news.set()

    def fail(self, why: str) -> None:
        """The engine is gone: nothing more will come."""
        self._failure = why
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        """The next piece; the last one has a finish reason.

        Raises:
            EngineDeadError: the engine has ended; what came before it was handed out.
        """
        while not self.live.has_piece or self._is_over:
            if self._is_over:
                raise StopAsyncIteration
            if self._failure is not None:
                self._is_over = True
                raise EngineDeadError(self._failure)
            self._news.clear()
            try:
                await self._news.wait()
            except asyncio.CancelledError:
                self._abort(self.key)
                raise
        piece = self.live.take_piece()
        self._is_over = piece.finish_reason is not None
        return piece

    async def finish(self) -> Completion:
        """Wait for the end and return all of it.

        Raises:
            EngineDeadError: the engine ended first.
        """
        async for _ in self:
            pass
        if self.live.completion is None:
            raise EngineDeadError(f"request {self.request_id!r} was left before its end")
        return self.live.completion

    async def aclose(self) -> None:
        """Leave; the request is aborted if it has not ended."""
        self._is_over = True
        self._abort(self.key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
