"""Serving: a socket, an engine, the app between them, and an orderly end.

A first SIGTERM, SIGHUP or SIGINT lets nobody in any more and waits for what runs; after `drain_s`,
or at a second signal, what is left is aborted. An engine that dies for good takes the server with
it, once that could be seen: whoever watches over the server starts it anew.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import uvicorn
from attrs import field, frozen

from framework.errors import ConfigError, EngineDeadError, bad_field
from framework.server.access import is_loopback
from framework.server.app import create_app
from framework.server.connections import (
    Connection,
    backlog,
    handle_quietly,
    raise_file_limit,
)
from framework.server.settings import DEFAULT_DRAIN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from fastapi import FastAPI

    from framework.server.desk import Desk
    from framework.server.faces import EngineLike
    from framework.server.settings import ServerSettings
    from framework.server.signals import Signals

KEEP_ALIVE_S = 30
"""Longer than clients keep an idle connection, so that none is closed under a new request."""
LAST_WORDS_S = 3
"""What aborted requests have for their last event; clients that do not read are cut off then."""
CUT_OFF_S = 2
"""What the calls of such clients have to end."""
LINGER_S = 5.0
"""How long a server whose engine is dead for good tells so, before it ends."""
log = logging.getLogger("headway.server")


def _port(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int or not 0 <= value <= 65535:
        raise bad_field(attribute.name, value, "an int from 0 to 65535 (0 = a free one)")


def _seconds(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not 0 <= value < float("inf"):
        raise bad_field(attribute.name, value, "a number of seconds of at least 0")


@frozen(kw_only=True)
class Listening:
    """Where to listen, and how to end.

    Attributes:
        host: name or address.
        port: 0 = a free one.
        drain_s: how long running requests may go on after a signal.
    """

    host: str = "127.0.0.1"
    port: int = field(default=8000, validator=_port)
    drain_s: float = field(default=DEFAULT_DRAIN_S, validator=_seconds)


def bind(listening: Listening) -> socket.socket:
    """A socket that listens, so that the port is taken; who connects waits for the server.

    The process may have more files from then on.

    Raises:
        ConfigError: the host is unknown or the port taken.
    """
    raise_file_limit()
    try:
        found = socket.getaddrinfo(
            listening.host, listening.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(backlog())
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {listening.host} port {listening.port}: {error.strerror or error}; "
            "allowed: a host of this machine and a port that is free"
        ) from error
    return bound


def warn_if_open(listening: Listening, settings: ServerSettings) -> str | None:
    """A sentence, if strangers can use the server."""
    if is_loopback(listening.host) or settings.api_key is not None:
        return None
    return (
        f"host {listening.host} lets other machines in and there is no API key: whoever reaches "
        "the port can use the model (set --api-key or HEADWAY_API_KEY)"
    )


async def serve(
    engine: EngineLike,
    settings: ServerSettings,
    listening: Listening,
    bound: socket.socket,
    *,
    signals: Signals,
    announce: Callable[[str], None],
) -> int | None:
    """Serve until a signal comes; `announce` is told the URL once connections are accepted.

    Returns:
        The signal, one of `signals`.

    Raises:
        EngineDeadError: it ended because the engine did.
    """
    asyncio.get_running_loop().set_exception_handler(handle_quietly)
    app, desk = create_app(engine, settings)
    await app.state.figures.begin()
    server = serve_on(app, desk, settings, listening, announce)
    signals.tell(server.handle_exit)
    await server.serve(sockets=[bound])
    if server.signal is None:
        raise EngineDeadError(engine.failure or "the engine is not there")
    return server.signal


def serve_on(
    app: FastAPI,
    desk: Desk,
    settings: ServerSettings,
    listening: Listening,
    announce: Callable[[str], None],
) -> DrainingServer:
    """The server of an app, which has not started."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,  # who the peer is decides about admin calls
        backlog=backlog(),
        http=Connection,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=LAST_WORDS_S + CUT_OFF_S,
    )
    return DrainingServer(config, desk, settings, listening, announce)


class DrainingServer(uvicorn.Server):
    """A uvicorn server that says where it listens, and drains before it goes."""

    def __init__(
        self,
        config: uvicorn.Config,
        desk: Desk,
        settings: ServerSettings,
        listening: Listening,
        announce: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self.signal: int | None = None
        self._desk = desk
        self._restarts = settings.restarts
        self._listening = listening
        self._announce = announce
        self._drain_until: float | None = None
        self._linger_until: float | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are caught outside: they must not kill what closes after the server."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        assert sockets is not None
        port = sockets[0].getsockname()[1]
        host = self._listening.host
        self._announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let every answer get to its end, if its client reads it."""
        cutting = asyncio.get_running_loop().call_later(LAST_WORDS_S, self._cut_off)
        await super().shutdown(sockets)
        cutting.cancel()

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                log.warning("a client has not read its answer, and is cut off")
                connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None = None) -> None:
        """The first signal begins the end, the second one makes it short."""
        if self.signal is None:
            self.signal = sig
            self._desk.is_closing = True
            self._drain_until = time.monotonic() + self._listening.drain_s
            log.info("%s: %d requests", signal.Signals(sig).name, self._desk.num_unfinished)
        else:
            self._drain_until = 0.0

    async def on_tick(self, counter: int) -> bool:
        """True once it is time to go."""
        await super().on_tick(counter)
        if self._drain_until is None:
            return self._has_outlived_engine()
        if self._desk.num_unfinished and time.monotonic() < self._drain_until:
            return False
        await self._desk.close()
        return True

    def _has_outlived_engine(self) -> bool:
        if self._restarts or self._desk.engine.is_alive:
            return False
        now = time.monotonic()
        if self._linger_until is None:
            self._linger_until = now + LINGER_S
            log.error("the server ends in %g s, since its engine has", LINGER_S)
        return now >= self._linger_until
