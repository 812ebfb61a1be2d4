"""One HTTP/1.1 call over a socket of its own, written by hand: fast, and free to misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

HOST: Final = "127.0.0.1"
NARROW_BYTES: Final = 4096
"""Buffers of a reader who lets the server feel that he is slow."""


@define(eq=False)
class Wire:
    """A connection for one call.

    Attributes:
        status, headers: of the answer, once `head` has been read.
    """

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    status: int = field(default=0, init=False)
    headers: dict[str, str] = field(factory=dict, init=False)

    @classmethod
    async def open(cls, port: int, *, narrow: bool = False) -> Wire:
        """Connect; `narrow` = with small buffers."""
        if not narrow:
            return cls(*await asyncio.open_connection(HOST, port))
        plug = socket.socket()
        plug.setblocking(False)
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
        await asyncio.get_running_loop().sock_connect(plug, (HOST, port))
        return cls(*await asyncio.open_connection(sock=plug, limit=NARROW_BYTES))

    def send(
        self, path: str, body: bytes | None, headers: Mapping[str, str], share: float = 1.0
    ) -> None:
        """Send a call, or the first share of it; without a body it is a GET."""
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {HOST}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        data = "\r\n".join([*lines, "Connection: close", "", ""]).encode() + (body or b"")
        self._writer.write(data[: max(1, int(len(data) * share))])

    async def head(self) -> None:
        """Read status and headers."""
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        pairs = (line.partition(":") for line in lines[1:] if line)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes.

        Raises:
            EOFError: the connection ends before the body does.
        """
        if self.headers.get("transfer-encoding") != "chunked":
            yield await self._reader.readexactly(int(self.headers["content-length"]))
            return
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)

    async def body(self) -> bytes:
        """All of it."""
        return b"".join([part async for part in self.parts()])

    def hang_up(self) -> None:
        """Leave at once, whatever is under way."""
        self._writer.transport.abort()

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()


async def ask(
    port: int, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of a small call; with a body it is a POST."""
    async with await Wire.open(port) as wire:
        wire.send(path, None if body is None else json.dumps(body).encode(), headers or {})
        await wire.head()
        return wire.status, await wire.body()
