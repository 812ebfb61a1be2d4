"""Clients of one engine side by side: one that is timed, and a neighbour that may never read."""

from __future__ import annotations

import asyncio
import gc
import time
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from framework.engine.parent.connection import Connection
from framework.engine.parent.launching import EngineProcess
from framework.engine.protocol import Add, Goodbye, Outputs, Shutdown, Utility, addresses

if TYPE_CHECKING:
    from framework.engine.settings import EngineSettings

STREAMS: Final = 32
"""Streams of each client."""
UNREAD: Final = 4000
"""Answers that a neighbour leaves unread first: more than all buffers on the way hold."""
PROMPT: Final = list(range(5, 15))


@define(eq=False)
class Client:
    """A front of its own, without text: counts tokens, or never reads at all."""

    connection: Connection
    num_tokens: int = field(default=0, init=False)
    _key: int = field(default=0, init=False)

    @classmethod
    async def of(cls, process: EngineProcess) -> Client:
        """One that the engine knows."""
        connection = Connection(*addresses(process.folder))
        await connection.greet()
        return cls(connection)

    def ask(self, num_tokens: int) -> None:
        """Send the requests of one round."""
        sampling = {"max_tokens": num_tokens, "temperature": 0.0, "ignore_eos": True}
        for _ in range(STREAMS):
            self._key += 1
            name = f"{self.connection.identity.hex()}-{self._key}"
            add = Add(self._key, name, PROMPT, dict(sampling), time.monotonic())
            self.connection.send(add)

    async def read(self) -> None:
        """Read until all requests of one round have ended."""
        num_ended = 0
        while num_ended < STREAMS:
            message = await self.connection.receive()
            if isinstance(message, Outputs):
                num_ended += len(message.ended)
                self.num_tokens += sum(map(len, message.token_ids))

    async def stop_reading(self, probe: Client) -> None:
        """Leave so much unread that nothing more fits; `probe` hears when the engine is through."""
        for call in range(UNREAD):
            self.connection.send(Utility(call, "stats"))
        probe.ask(1)
        await probe.read()

    def leave(self) -> None:
        """Say goodbye."""
        self.connection.send(Goodbye())
        self.connection.close()


async def one_round(process: EngineProcess, neighbour: str, num_tokens: int) -> float:
    """Tokens a second of a client beside a neighbour: "none", "reads" or "stuck"."""
    client, other = await Client.of(process), await Client.of(process)
    client.ask(8)
    await client.read()
    if neighbour == "stuck":
        await other.stop_reading(client)
    client.num_tokens = 0
    gc.collect()
    if neighbour != "none":
        other.ask(2 * num_tokens)  # so that they are there to the end
    started = time.perf_counter()
    client.ask(num_tokens)
    reads = asyncio.create_task(other.read()) if neighbour == "reads" else None
    await client.read()
    taken = time.perf_counter() - started
    if reads is not None:
        await reads
    client.leave()
    other.leave()
    assert client.num_tokens == STREAMS * num_tokens
    return client.num_tokens / taken


async def beside(settings: EngineSettings, num_tokens: int, repeats: int) -> dict[str, Any]:
    """How fast a client is beside each kind of neighbour."""
    process = EngineProcess.spawn(settings)
    await asyncio.to_thread(process.wait_ready)
    speeds: dict[str, list[float]] = {"none": [], "reads": [], "stuck": []}
    for _ in range(repeats):
        for neighbour, found in speeds.items():
            found.append(await one_round(process, neighbour, num_tokens))
    last = await Client.of(process)
    last.connection.send(Shutdown(drain=False))
    await asyncio.to_thread(process.stop)
    last.connection.close()
    figures = {name: median(found) for name, found in speeds.items()}
    return {"tok_s": figures, "tok_s_all": speeds, "ratio": figures["stuck"] / figures["reads"]}
