"""Inbox: the thread that reads what fronts send, and answers what is not for the engine.

Nothing that comes in can hurt: what cannot be read is refused, a request that is not allowed is
ended with a sentence, and only what has passed every check is put into the engine's queue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, TypeAlias

import zmq
from attrs import define, field, frozen

from framework.engine.protocol import (
    VERSION,
    Abort,
    Add,
    Ended,
    FromFront,
    Goodbye,
    Hello,
    Outputs,
    Ping,
    ProtocolError,
    Ready,
    Refused,
    Shutdown,
    Utility,
    decode_from_front,
)
from framework.errors import RequestError

if TYPE_CHECKING:
    from framework.engine.child.incoming import Accepts
    from framework.engine.child.sending import Outbox
    from framework.engine.protocol import EngineInfo
    from framework.request import Request

POLL_MS: Final = 200
LATE_S: Final = 5.0
"""A look that comes so late says that this thread was held up, not that fronts were silent."""
SILENCE_S: Final = 30.0
"""A front that is not heard for so long is gone; it sends a ping every second."""
log = logging.getLogger("headway.process")


@frozen
class NewRequest:
    """A request that has passed every check."""

    key: int
    request: Request
    request_wave: int


class PeerLost:
    """The front is gone."""


Incoming: TypeAlias = NewRequest | Abort | Utility | Shutdown | PeerLost
InputQueue: TypeAlias = SimpleQueue[tuple[bytes, Incoming]]


@define(eq=False)
class Inbox:
    """Everything that enters the engine's process.

    Attributes:
        socket: the bound ROUTER; used by this thread alone once it has started.
        queue: what the engine's thread is to do, in order.
        outbox: for answers, and the peers that are known.
        accepts: what the engine can serve.
        info: what the engine serves now, for a front that says hello.
    """

    socket: zmq.Socket[bytes]
    queue: InputQueue
    outbox: Outbox
    accepts: Accepts
    info: Callable[[], EngineInfo]
    _stop: Event = field(factory=Event)
    _thread: Thread | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread = Thread(target=self._run, name="headway-input", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * POLL_MS / 1000)

    def _run(self) -> None:
        next_look = time.monotonic() + 1
        while not self._stop.is_set():
            if self.socket.poll(POLL_MS):
                peer, *frames = self.socket.recv_multipart()
                self._read(peer, frames)
            late_s = time.monotonic() - next_look
            if late_s >= 0:
                next_look = time.monotonic() + 1
                if late_s < LATE_S:  # else what fronts sent meanwhile is still to be read
                    self._look_for_silence()
        self.socket.close(linger=0)

    def _read(self, peer: bytes, frames: list[bytes]) -> None:
        try:
            if len(frames) != 1:
                raise ProtocolError(f"message: got {len(frames)} frames, allowed: one")
            self._take(peer, decode_from_front(frames[0]))
        except ProtocolError as error:
            self.outbox.put(peer, Refused(str(error)))
        except Exception as error:  # whatever a stranger finds to send must not end the thread
            log.exception("a message could not be handled")
            self.outbox.put(peer, Refused(f"message: {type(error).__name__}: {error}"))

    def _take(self, peer: bytes, message: FromFront) -> None:
        if isinstance(message, Hello):
            return self._greet(peer, message)
        if not self.outbox.hear(peer):
            raise ProtocolError(f"{type(message).__name__}: say Hello first")
        if isinstance(message, Add):
            return self._add(peer, message)
        if isinstance(message, Goodbye):
            return self._lose(peer)
        if not isinstance(message, Ping):
            self.queue.put((peer, message))
        return None

    def _greet(self, peer: bytes, hello: Hello) -> None:
        if hello.version != VERSION:
            raise ProtocolError(f"version: got {hello.version}, allowed: {VERSION}")
        self.outbox.meet(peer)
        self.outbox.put(peer, Ready(VERSION, self.info(), self.outbox.wave))

    def _add(self, peer: bytes, add: Add) -> None:
        try:
            request = self.accepts.request(add)
        except RequestError as error:
            self.outbox.put(peer, Outputs([], [], [Ended(add.key, "rejected", error=str(error))]))
        else:
            self.queue.put((peer, NewRequest(add.key, request, add.request_wave)))

    def _look_for_silence(self) -> None:
        oldest = time.monotonic() - SILENCE_S
        for peer, heard in list(self.outbox.peers.items()):
            if heard < oldest:
                log.warning("a front has been silent for %.0f s and is given up", SILENCE_S)
                self._lose(peer)

    def _lose(self, peer: bytes) -> None:
        self.outbox.forget(peer)
        self.queue.put((peer, PeerLost()))
