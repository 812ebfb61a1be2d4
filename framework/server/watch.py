"""Work for a client that may leave: it ends when nobody is there to hear the answer."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.responses import Response

from framework.errors import HeadwayError
from framework.server.errors import as_api_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from starlette.types import Receive, Scope, Send

    from framework.server.job import Job

T = TypeVar("T")
log = logging.getLogger("headway.server")


class ClientGoneError(HeadwayError):
    """The client has left; nobody is told."""


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is cancelled if the client leaves first.

    Raises:
        ClientGoneError: it left.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGoneError("the client has left")
    finally:
        for task in (working, watching):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def encode_event(data: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(Response):
    """Server-sent events: the first one is there already, so that its failure had a status."""

    media_type = "text/event-stream"

    def __init__(self, job: Job, first: bytes, rest: AsyncIterator[bytes]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"  # nginx passes events on as they come
        self._job = job
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end or the client leaves; then nothing of the call runs."""
        try:
            await until_gone(receive, self._send(send))
        except ClientGoneError:
            log.debug("a client left its stream")
        finally:
            await self._job.close()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await _send_part(send, self._first)
        try:
            async for event in self._rest:
                await _send_part(send, event)
        except Exception as error:
            told = as_api_error(error)
            if told.status >= 500:
                log.exception("a stream ends with an error")
            await _send_part(send, encode_event(told.body))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
