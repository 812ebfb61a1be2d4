"""Connections: how many there may be, and how long one may keep the server waiting."""

from __future__ import annotations

import logging
import resource
import time
from typing import TYPE_CHECKING, Any, Final

import h11
from attrs import define
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

PATIENCE_S: Final = 30.0
"""What a client has for the headers of a request, and for each next part of its body."""
MOST_CONNECTIONS: Final = 4096
MOST_BACKLOG: Final = 512
OTHER_FILES: Final = 128
"""Files and sockets that the server needs besides connections."""
ROUNDS: Final = 4
"""Turns of the loop in which a backlog may be accepted before the first is counted and closed."""
WANTED_FILES: Final = MOST_CONNECTIONS + ROUNDS * MOST_BACKLOG + OTHER_FILES
QUIET_S: Final = 60.0
FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
log = logging.getLogger("headway.server")


def raise_file_limit() -> None:
    """Ask for as many files as the server may want, as far as the hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def backlog() -> int:
    """Connections that may wait to be accepted."""
    return max(1, min(MOST_BACKLOG, _num_files() // 8))


def most_connections() -> int:
    """Connections that this process has files for."""
    return max(1, min(MOST_CONNECTIONS, _num_files() - ROUNDS * backlog() - OTHER_FILES))


def _num_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED_FILES if soft == resource.RLIM_INFINITY else soft


@define
class Seldom:
    """Logs an error that may come by the thousand, once a minute."""

    _told_at: float = float("-inf")

    def tell(self, message: str, *about: object) -> None:
        """Log it, if the last time is long past."""
        if time.monotonic() - self._told_at >= QUIET_S:
            self._told_at = time.monotonic()
            log.error(message, *about)


_full = Seldom()
_out_of_files = Seldom()


class Connection(H11Protocol):
    """Refused if there are too many, and closed if its client does not end what it began to say."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, if there is room for one more."""
        super().connection_made(transport)
        most = most_connections()
        if len(self.connections) <= most:
            self._wait()
            return
        _full.tell("a connection is refused: %d are open, and no more are allowed", most)
        transport.write(FULL)
        transport.close()

    def data_received(self, data: bytes) -> None:
        """Headers must get done in time; a body must only go on."""
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._wait()
        elif state is not h11.IDLE:
            self._stop_waiting()
        elif self._waiting is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self._waiting = self.loop.call_later(PATIENCE_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def handle_quietly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A loop's handler of exceptions.

    Where files have run out, the loop reports each connection that waits, with a traceback.
    """
    if "out of system resource" in context.get("message", ""):
        _out_of_files.tell("no connection can be accepted: %s", context.get("exception"))
    else:
        loop.default_exception_handler(context)
