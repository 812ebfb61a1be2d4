"""Link: an engine's process and the line to it, from spawning to its end and beyond.

It hears the engine's pulse and sends its own, tells at once when the process dies, and starts
another one if it is told to.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import define, evolve, field

from framework.engine.parent.connection import Connection
from framework.engine.parent.launching import PATIENCE_S, EngineProcess
from framework.engine.protocol import (
    EngineInfo,
    Ping,
    ProtocolError,
    Pulse,
    Refused,
    Shutdown,
    Stopped,
    addresses,
)
from framework.errors import EngineDeadError

if TYPE_CHECKING:
    from framework.engine.protocol import FromEngine, FromFront
    from framework.engine.settings import EngineSettings

OnMessage: TypeAlias = "Callable[[FromEngine], None]"
OnDeath: TypeAlias = Callable[[str], None]

PING_S: Final = 1.0
LAST_WORDS_S: Final = 0.1
"""What an engine sent before it ended is read for so long before its end counts."""
SILENCE_S: Final = 15.0
"""An engine sends a pulse every half second; one that is silent for so long is taken for dead."""
MOST_PAUSE_S: Final = 30.0
"""Between two tries to start an engine; the first pause is half a second and they double."""
log = logging.getLogger("headway.link")


@define(eq=False)
class Link:
    """The way to one engine, and to the next if `restart`.

    Attributes:
        settings: what is spawned.
        restart: spawn another one when the process dies.
        info: what the engine serves.
        wave: the engine's wave of requests, as last heard.
        failure: why nothing can be sent now, or None.
        num_restarts: engines that took the place of a dead one.
    """

    settings: EngineSettings
    restart: bool = False
    info: EngineInfo = field(init=False)
    wave: int = field(default=0, init=False)
    failure: str | None = field(default="the engine is starting", init=False)
    num_restarts: int = field(default=0, init=False)
    _process: EngineProcess | None = field(default=None, init=False)
    _connection: Connection | None = field(default=None, init=False)
    _heard: float = field(default=0.0, init=False)
    _on_message: OnMessage = field(default=lambda _: None, init=False)
    _on_death: OnDeath = field(default=lambda _: None, init=False)
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)
    _revival: asyncio.Task[None] | None = field(default=None, init=False)
    _is_closing: bool = field(default=False, init=False)

    async def open(self) -> None:
        """Spawn an engine and wait until it answers.

        Raises:
            ModelError, PluginError, ConfigError: something in the settings cannot be used.
            EngineDeadError: the process ended before it was ready.
        """
        self._process = EngineProcess.spawn(self.settings)
        await asyncio.to_thread(self._process.wait_ready)
        self._connection = Connection(*addresses(self._process.folder))
        self.info = (await self._connection.greet()).info
        self.failure = None
        self._heard = time.monotonic()

    def listen(self, on_message: OnMessage, on_death: OnDeath) -> None:
        """Begin to hear the engine.

        Args:
            on_message: told each message but pulses and the engine's end.
            on_death: told why there is no engine any more.
        """
        self._on_message, self._on_death = on_message, on_death
        self._watch()

    def send(self, message: FromFront) -> None:
        """Send a message; returns at once.

        Raises:
            EngineDeadError: there is no engine now.
            ProtocolError: the message cannot be encoded.
        """
        if self.failure is not None or self._connection is None:
            raise EngineDeadError(self.failure or "the engine is starting")
        self._connection.send(message)

    def use(self, plugins: Sequence[str]) -> None:
        """What the next engine is started with, since this one has swapped its stack."""
        self.settings = evolve(self.settings, plugins=tuple(plugins))

    def name(self, key: int) -> str:
        """A request id that no other front makes."""
        assert self._connection is not None
        return f"{self._connection.identity.hex()[:12]}-{key}"

    @property
    def silence_s(self) -> float:
        """Seconds since the engine was last heard; it says something every half second."""
        return time.monotonic() - self._heard

    @property
    def pid(self) -> int | None:
        """The process id of the engine."""
        return None if self._process is None else self._process.pid

    # -----------------------------------------------------------------------------------------
    # life and death
    # -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        loop.add_reader(self._process.sentinel, self._process_ended)
        self._tasks = [asyncio.create_task(self._hear()), asyncio.create_task(self._ping())]

    async def _hear(self) -> None:
        assert self._connection is not None
        while True:
            try:
                self._take(await self._connection.receive())
            except ProtocolError as error:
                log.error("%s", error)  # noqa: TRY400  (whose fault it is is not here)
            except Exception as error:  # readers must not wait for what will not come
                log.exception("a message of the engine could not be handled")
                self._die(f"a message of the engine could not be handled: {error!r}")
            await asyncio.sleep(0)  # an engine that is ahead must not keep readers from reading

    def _take(self, message: FromEngine) -> None:
        self._heard = time.monotonic()
        if isinstance(message, Pulse):
            self.wave = max(self.wave, message.wave)
        elif isinstance(message, Stopped):
            self._die(f"the engine stopped: {message.reason}")
        elif isinstance(message, Refused):
            self._die(f"the engine has given this front up: {message.error}")
        else:
            self._on_message(message)

    async def _ping(self) -> None:
        while True:
            asleep = time.monotonic()
            await asyncio.sleep(PING_S)
            now = time.monotonic()
            if self.failure is None:
                self.send(Ping())
            if now - asleep > 2 * PING_S:  # it was this loop that stood still
                self._heard = now
            if now - self._heard > SILENCE_S:
                self._die(f"the engine has been silent for {SILENCE_S:g} s")

    def _process_ended(self) -> None:
        assert self._process is not None
        loop, process = asyncio.get_running_loop(), self._process
        loop.remove_reader(process.sentinel)
        process.join()
        loop.call_later(LAST_WORDS_S, self._bury, process)

    def _bury(self, process: EngineProcess) -> None:
        if self._process is process:
            self._die(process.obituary())

    def _die(self, why: str) -> None:
        if self.failure is not None:
            return
        self.failure = why
        if not self._is_closing:
            log.error("%s", why)
        self._on_death(why)
        if self.restart and not self._is_closing:
            self._revival = asyncio.create_task(self._revive())

    async def _revive(self) -> None:
        why, pause_s = self.failure, 0.5
        while True:
            await self._let_go(patience_s=0)
            try:
                await self.open()
            except Exception as error:
                self.failure = f"{why}; it could not be started again: {error}"
                log.exception("the engine could not be started again")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)
            else:
                self.num_restarts += 1
                log.warning("the engine was started again: %s", "+".join(self.info.plugins))
                return self._watch()

    async def _let_go(self, patience_s: float) -> None:
        """Stop hearing, and end the process if it does not end in time."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        if self._process is not None:
            asyncio.get_running_loop().remove_reader(self._process.sentinel)
            await asyncio.to_thread(self._process.stop, patience_s)
            self._process = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def close(self, *, drain: bool) -> None:
        """End the engine: after its requests, or at once."""
        self._is_closing = True
        if self._revival is not None:
            self._revival.cancel()
        is_asked = self.failure is None
        if is_asked:
            self.send(Shutdown(drain))
            while drain and self.failure is None:
                await asyncio.sleep(PING_S / 20)
        self.failure = self.failure or "the engine was closed"
        await self._let_go(PATIENCE_S if is_asked else 0)
