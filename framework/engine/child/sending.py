"""Outbox: the thread that encodes what the engine says and sends it, whoever is slow to read.

A peer whose socket is full gets what it missed later, in order. One that falls too far behind is
given up, so that a reader that sleeps costs bounded memory and never the engine's time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

import zmq
from attrs import define, field

from framework.engine.protocol import (
    Ended,
    Outputs,
    ProtocolError,
    Pulse,
    Refused,
    Reply,
    encode,
)

if TYPE_CHECKING:
    from framework.engine.protocol import FromEngine

PULSE_S: Final = 0.5
RETRY_S: Final = 0.02
MOST_BEHIND: Final = 10_000
"""Messages that a peer may be behind before it is given up."""
MOST_BYTES_BEHIND: Final = 64 << 20
"""The same in bytes: lists of likely tokens make long messages."""
log = logging.getLogger("headway.process")


@define(eq=False)
class Backlog:
    """What a peer could not take yet."""

    frames: deque[bytes] = field(factory=deque)
    num_bytes: int = 0

    def append(self, frame: bytes) -> None:
        """Keep one more."""
        self.frames.append(frame)
        self.num_bytes += len(frame)

    def drop_first(self) -> None:
        """The oldest one was taken."""
        self.num_bytes -= len(self.frames.popleft())

    @property
    def is_too_long(self) -> bool:
        """Whether its peer is to be given up."""
        return len(self.frames) > MOST_BEHIND or self.num_bytes > MOST_BYTES_BEHIND


@define(eq=False)
class Outbox:
    """Everything that leaves the engine's process.

    Attributes:
        socket: the bound ROUTER; used by this thread alone once it has started.
        on_lost: told of a peer that was given up, or is gone.
        peers: whom to send a pulse, and when each was last heard.
        wave: told with each pulse; written by the engine's thread.
    """

    socket: zmq.Socket[bytes]
    on_lost: Callable[[bytes], None]
    peers: dict[bytes, float] = field(factory=dict)
    wave: int = 0
    _queue: SimpleQueue[tuple[bytes, FromEngine] | None] = field(factory=SimpleQueue)
    _behind: dict[bytes, Backlog] = field(factory=dict)
    _lock: Lock = field(factory=Lock)
    _thread: Thread | None = None

    def start(self) -> None:
        """Begin to send."""
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an error instead of a silent loss
        self._thread = Thread(target=self._run, name="headway-output", daemon=True)
        self._thread.start()

    def put(self, peer: bytes, message: FromEngine) -> None:
        """Say something to one peer; returns at once."""
        self._queue.put((peer, message))

    def meet(self, peer: bytes) -> None:
        """It has said hello."""
        with self._lock:
            self.peers[peer] = time.monotonic()

    def hear(self, peer: bytes) -> bool:
        """It has said something; False if it has not said hello, or was given up."""
        with self._lock:  # one that is given up just now must not come back unnoticed
            is_known = peer in self.peers
            if is_known:
                self.peers[peer] = time.monotonic()
            return is_known

    def forget(self, peer: bytes) -> None:
        """It is gone."""
        with self._lock:
            self.peers.pop(peer, None)

    def close(self, timeout_s: float = 2.0) -> None:
        """Send what is left, as far as peers take it in time, and end the thread."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        next_pulse = 0.0
        while True:
            try:
                item = self._queue.get(timeout=RETRY_S if self._behind else PULSE_S)
                if item is None:
                    break
                self._send(*item)
            except Empty:
                pass
            except Exception:  # a message is lost, and no other
                log.exception("a message could not be sent")
            if self._behind:
                self._catch_up()
            if time.monotonic() >= next_pulse:
                next_pulse = time.monotonic() + PULSE_S
                for peer in list(self.peers):
                    if peer not in self._behind:
                        self._send(peer, Pulse(self.wave))
        self._catch_up()
        self.socket.close(linger=1000)

    def _send(self, peer: bytes, message: FromEngine) -> None:
        if peer not in self.peers and not isinstance(message, Refused):
            return  # it was given up: after a gap nothing that follows makes sense
        frame = _frame(message)
        backlog = self._behind.get(peer)
        if backlog is None:
            if self._deliver(peer, frame):
                return
            backlog = self._behind[peer] = Backlog()
        backlog.append(frame)
        if backlog.is_too_long:
            log.warning("a front reads too slowly and is given up")
            self._give_up(peer)

    def _deliver(self, peer: bytes, frame: bytes) -> bool:
        """False if the peer cannot take it now."""
        try:
            self.socket.send_multipart((peer, frame), zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            if peer in self.peers:  # it said hello and was heard: now it is gone
                self._give_up(peer)
        return True

    def _catch_up(self) -> None:
        for peer, backlog in list(self._behind.items()):
            while backlog.frames and self._deliver(peer, backlog.frames[0]):
                backlog.drop_first()
            if not backlog.frames:
                self._behind.pop(peer, None)

    def _give_up(self, peer: bytes) -> None:
        self._behind.pop(peer, None)
        self.forget(peer)
        self.on_lost(peer)


def _frame(message: FromEngine) -> bytes:
    """The message, or an error in its place if a runner or plugin put something odd into it."""
    try:
        return encode(message)
    except ProtocolError as error:
        log.exception("a message cannot be sent")
        why = str(error)
        if isinstance(message, Outputs):
            keys = dict.fromkeys([*message.keys, *(one.key for one in message.ended)])
            return encode(Outputs([], [], [Ended(key, "error", error=why) for key in keys]))
        if isinstance(message, Reply):
            return encode(Reply(message.call, error=why, kind="ProtocolError"))
        raise
