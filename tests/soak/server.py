"""A `headway serve` of its own: started, meddled with while it works, looked at, and ended."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from attrs import define, field

from tests.soak.wire import ask

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Sequence

START_S: Final = 120.0
END_S: Final = 20.0
IDLE_S: Final = 20.0
NUM_BLOCKS: Final = 512
"""Few enough that requests lose their places, enough for the longest one."""
ADMIN_KEY: Final = "soak"
POLICIES: Final = (
    ("fcfs",),
    ("priority",),
    ("priority(displace=True)",),
    ("vtc",),
    ("lpm",),
    ("prefill_first",),
    ("skip_join_mlfq",),
)


@define(eq=False)
class Served:
    """A running server.

    Attributes:
        port: where it listens, on this machine only.
        log: what it says.
        num_swaps: policies that were put in place while it ran.
        refusals: answers to its owner's calls that were not 200.
    """

    port: int
    log: Path
    plugins: tuple[str, ...]
    _process: Process
    num_swaps: int = field(default=0, init=False)
    refusals: list[str] = field(factory=list, init=False)

    @classmethod
    async def start(cls, runner: str, plugins: Sequence[str], log: Path) -> Served:
        """Start one, and wait until it listens.

        Raises:
            RuntimeError: it ends, or does not listen in time.
        """
        command = [str(Path(sys.executable).with_name("headway")), "serve", "smollm2"]
        command += ["--runner", runner, "--port", "0", "--num-blocks", str(NUM_BLOCKS)]
        command += ["--max-num-seqs", "64", "--max-queue", "4096"]
        for plugin in plugins:
            command += ["--plugin", plugin]
        environment = {**os.environ, "HEADWAY_ADMIN_KEY": ADMIN_KEY}
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=file, env=environment
            )
        assert process.stdout is not None
        try:
            line = (await asyncio.wait_for(process.stdout.readline(), START_S)).decode()
            found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\s*", line)
            if found is None:
                raise RuntimeError(f"the server says {line!r}:\n{log.read_text()[-2000:]}")
        except BaseException:
            if process.returncode is None:
                process.kill()
            raise
        return cls(int(found.group(1)), log, tuple(plugins), process)

    @property
    def pid(self) -> int:
        """The front's process id."""
        return self._process.pid

    async def meddle(self, random: Random, swap_until: float) -> None:
        """Swap policies, pause and reset the cache now and then, until cancelled.

        A swap brings a new pool, so none is made after `swap_until`: what leaks from then on is
        there to be seen at the end.
        """
        try:
            while True:
                await asyncio.sleep(random.uniform(0.5, 4))
                draw = random.random()
                if draw < 0.6 and time.monotonic() < swap_until:
                    policy = [*self.plugins, *random.choice(POLICIES)]
                    await self._admin("swap", {"plugins": policy})
                    self.num_swaps += 1
                elif draw < 0.85:
                    await self._admin("pause", {})
                    await asyncio.sleep(random.uniform(0.05, 1))
                    await self._admin("resume", {})
                else:
                    await self._admin("reset_prefix_cache", {})
        finally:
            await asyncio.shield(self._admin("resume", {}))

    async def _admin(self, call: str, body: dict[str, list[str]]) -> None:
        status, told = await ask(
            self.port, f"/admin/{call}", body, {"Authorization": f"Bearer {ADMIN_KEY}"}
        )
        if status != 200:
            self.refusals.append(f"{call} {body}: {status} {told.decode()}")

    async def leaked_blocks(self) -> int:
        """Blocks in use once nothing runs or waits.

        Raises:
            RuntimeError: requests are left long after the last client has gone.
        """
        deadline = time.monotonic() + IDLE_S
        while True:
            gauges = await self._figures()
            left = gauges["num_requests_running"] + gauges["num_requests_waiting"]
            if not left:
                return round(gauges["kv_cache_usage_perc"] * NUM_BLOCKS)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{left:.0f} requests are left though nobody is there")
            await asyncio.sleep(0.2)

    async def num_preemptions(self) -> int:
        """How often requests lost their places."""
        return int((await self._figures())["num_preemptions_total"])

    async def _figures(self) -> dict[str, float]:
        _, told = await ask(self.port, "/metrics")
        found = re.findall(r"^vllm:(\w+)\{[^}]*\} (\S+)$", told.decode(), re.MULTILINE)
        return {name: float(value) for name, value in found}

    async def end(self) -> str | None:
        """Ask it to end; a sentence if it does not do so in order."""
        if self._process.returncode is not None:
            return f"the server ended by itself with status {self._process.returncode}"
        self._process.send_signal(signal.SIGTERM)
        try:
            status = await asyncio.wait_for(self._process.wait(), END_S)
        except TimeoutError:
            self._process.kill()
            return f"the server did not end within {END_S:.0f} s of SIGTERM"
        if status not in (0, 128 + signal.SIGTERM, -signal.SIGTERM):
            return f"the server ended with status {status}"
        return None
