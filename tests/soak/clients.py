"""Clients that call a server without a break, each in the manner of its call, and check it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from attrs import define, field

from tests.soak.calls import RUBBISH
from tests.soak.checking import Fault, Transcript, fault_of
from tests.soak.wire import Wire

if TYPE_CHECKING:
    from tests.soak.calls import Call, Draws

MOST_CALL_S: Final = 60.0
"""A call that takes longer has been lost."""
MOST_PAUSE_S: Final = 5.0
"""What a slow reader waits in all; then he reads the rest."""
MOST_FAULTS: Final = 20
"""So many are told in full."""


@define(eq=False)
class Tally:
    """What all clients met.

    Attributes:
        counts: by kind of fault; and finished, aborted, refused.
        told: the first faults, as sentences.
    """

    counts: Counter[str] = field(factory=Counter)
    told: list[str] = field(factory=list)

    def add(self, fault: Fault | None, call: Call) -> None:
        """The end of a call that was read to its end."""
        if fault is None:
            self.counts["finished"] += 1
            return
        self.counts[fault.kind] += 1
        if len(self.told) < MOST_FAULTS:
            named = call.name or "unnamed"
            body = call.body.decode()[:300]
            self.told.append(f"{fault.kind}: {call.manner} {named}: {fault.told}\n  {body}")


@define(eq=False)
class Client:
    """One client: one call after another."""

    port: int
    draws: Draws
    tally: Tally

    async def run(self, until: float) -> None:
        """Call until that time; the last call is read to its end."""
        while time.monotonic() < until:
            call = self.draws.draw()
            manner = getattr(self, call.manner)
            try:
                async with asyncio.timeout(MOST_CALL_S):
                    await manner(call)
            except TimeoutError:
                self.tally.add(Fault("lost", f"no end within {MOST_CALL_S:.0f} s"), call)
            except (OSError, EOFError, ValueError, LookupError) as error:
                self.tally.add(Fault("lost", f"{type(error).__name__}: {error}"), call)

    # -----------------------------------------------------------------------------------------
    # manners; each is named in `calls.MANNERS`
    # -----------------------------------------------------------------------------------------

    async def read(self, call: Call) -> None:
        """Read a stream to its end."""
        self.tally.add(await self._check(call), call)

    async def read_whole(self, call: Call) -> None:
        """Read an answer that is no stream."""
        self.tally.add(await self._check(call), call)

    async def read_slowly(self, call: Call) -> None:
        """Read a few bytes, wait, and so on."""
        self.tally.add(await self._check(call, pause_s=0.2 * call.patience), call)

    async def leave_midway(self, call: Call) -> None:
        """Leave a stream after some of its parts."""
        async with await Wire.open(self.port) as wire:
            wire.send(call.path, call.body, call.headers)
            await wire.head()
            num_parts = int(call.patience * call.wish.max_tokens)
            async for _ in wire.parts():
                num_parts -= 1
                if num_parts <= 0:
                    break
            wire.hang_up()
        self.tally.counts["aborted"] += 1

    async def leave_early(self, call: Call) -> None:
        """Leave before the answer, or in the middle of the call."""
        async with await Wire.open(self.port) as wire:
            share = 1.0 if call.patience < 0.5 else call.patience
            wire.send(call.path, call.body, call.headers, share)
            await asyncio.sleep(0.05 * call.patience)
            wire.hang_up()
        self.tally.counts["aborted"] += 1

    async def send_rubbish(self, call: Call) -> None:
        """Send what must be refused."""
        body, status = RUBBISH[int(call.patience * len(RUBBISH))]
        async with await Wire.open(self.port) as wire:
            wire.send("/v1/completions", body, call.headers)
            await wire.head()
            told = json.loads(await wire.body())
        if wire.status == status and told["error"]["message"]:
            self.tally.counts["refused"] += 1
        else:
            self.tally.add(Fault("wrong", f"status {wire.status} to {body[:80]!r}: {told}"), call)

    async def send_twice(self, call: Call) -> None:
        """Two calls of one name: either is refused, or right."""
        faults = await asyncio.gather(
            self._check(call, may_be_refused=True), self._check(call, may_be_refused=True)
        )
        refused = [fault for fault in faults if fault is REFUSED]
        self.tally.counts["refused"] += len(refused)
        for fault in faults:
            if fault is not REFUSED:
                self.tally.add(fault, call)
        if len(refused) == len(faults):
            self.tally.add(Fault("lost", "both calls of one name were refused"), call)

    async def _check(
        self, call: Call, *, pause_s: float = 0.0, may_be_refused: bool = False
    ) -> Fault | None:
        got = Transcript()
        async with await Wire.open(self.port, narrow=pause_s > 0) as wire:
            wire.send(call.path, call.body, call.headers)
            await wire.head()
            if wire.status == 409 and may_be_refused:
                return REFUSED
            if wire.status != 200 or call.manner == "read_whole":
                got.take_whole(await wire.body())
            else:
                await _read_stream(wire, got, pause_s)
        name = wire.headers.get("x-request-id", "")
        wanted = [
            self.draws.offline.expected(call.choice_name(name, index), call.wish)
            for index in range(call.num_choices)
        ]
        return fault_of(got, wanted)


REFUSED: Final = Fault("refused", "its name is taken")


async def _read_stream(wire: Wire, got: Transcript, pause_s: float) -> None:
    rest, paused_s = b"", 0.0
    async for part in wire.parts():
        *events, rest = (rest + part).split(b"\n\n")
        for event in events:
            got.take_event(event)
        if pause_s and paused_s < MOST_PAUSE_S:
            paused_s += pause_s
            await asyncio.sleep(pause_s)
    if rest:
        raise EOFError(f"the stream ends in the middle of an event: {rest[-80:]!r}")
