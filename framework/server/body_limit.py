"""BodyLimit: no body is longer than allowed, whether or not it says its length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Middleware: 413 once a body is longer than `most` bytes; the rest of it is not read."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body is counted as it comes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        num_bytes = 0
        too_long = announced.isdigit() and int(announced) > self._most

        async def counted() -> Message:
            nonlocal num_bytes
            if too_long:
                raise self._error(announced.decode())
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._most:
                raise self._error(f"more than {self._most}")
            return message

        await self._app(scope, counted, send)

    def _error(self, got: str) -> HTTPException:
        told = f"body: got {got} bytes, allowed: at most {self._most}"
        return HTTPException(413, told, headers={"Connection": "close"})
