"""Connection: one front's two sockets to an engine, in asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import zmq
import zmq.asyncio
from attrs import define, field

from framework.engine.protocol import (
    VERSION,
    Hello,
    Ready,
    Refused,
    decode_from_engine,
    encode,
)
from framework.errors import EngineDeadError

if TYPE_CHECKING:
    from framework.engine.protocol import FromEngine, FromFront

HELLO_EVERY_S: Final = 0.1
HELLO_TRIES: Final = 100


@define(eq=False)
class Connection:
    """Sends without ever waiting, and hears one message after another.

    Args:
        to_engine, from_engine: the engine's two addresses.
    """

    to_engine: str
    from_engine: str
    identity: bytes = field(factory=lambda: uuid4().bytes, init=False)
    _out: zmq.Socket[bytes] = field(init=False)
    _in: zmq.asyncio.Socket = field(init=False)

    def __attrs_post_init__(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._out = context.socket(zmq.DEALER)
        self._in = zmq.asyncio.Socket(context, zmq.DEALER)
        for socket, address in ((self._out, self.to_engine), (self._in, self.from_engine)):
            socket.setsockopt(zmq.IDENTITY, self.identity)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.connect(address)

    async def greet(self) -> Ready:
        """Say hello until the engine answers.

        Raises:
            EngineDeadError: it does not, or refuses this front.
        """
        for _ in range(HELLO_TRIES):
            self.send(Hello(VERSION))
            try:
                answer = await asyncio.wait_for(self.receive(), HELLO_EVERY_S)
            except TimeoutError:
                continue
            if isinstance(answer, Ready):
                return answer
            if isinstance(answer, Refused):
                raise EngineDeadError(f"the engine refuses this front: {answer.error}")
        raise EngineDeadError(f"no engine answers at {self.to_engine}")

    def send(self, message: FromFront) -> None:
        """Send one message; returns at once.

        Raises:
            ProtocolError: it cannot be encoded.
        """
        self._out.send(encode(message), zmq.NOBLOCK)

    async def receive(self) -> FromEngine:
        """The next message of the engine."""
        return decode_from_engine(await self._in.recv())

    def close(self) -> None:
        """Close both sockets; what is unsent is dropped after a moment."""
        self._out.close(linger=200)
        self._in.close(linger=0)
