"""A server under clients of every kind, for a while: `make soak STREAMS=200 SECONDS=300`.

    python -m tests.soak --streams 200 --seconds 300 --runner scripted

So many clients call `headway serve` without a break: they read, read slowly, leave, send rubbish,
and use one name twice, while policies are swapped and the engine is paused. Every answer that was
read to its end must be what the same request gives offline; afterwards no block may be in use, and
memory must not have grown. Talks to 127.0.0.1 alone.

Exit status: 0 = all of that, 1 = not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from attrs import define
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.soak.calls import KNOWN_SOURCES, Draws
from tests.soak.clients import MOST_CALL_S, Client, Tally
from tests.soak.memory import Scale
from tests.soak.offline import Offline
from tests.soak.server import Served

if TYPE_CHECKING:
    from tests.soak.memory import Growth

LAST_SWAP: Final = 0.75
"""Share of the time after which policies stay."""


@define(eq=False, kw_only=True)
class Outcome:
    """What a soak came to."""

    streams: int
    tally: Tally
    growths: list[Growth]
    memory: dict[str, list[tuple[float, float]]]
    num_swaps: int
    num_preemptions: int
    leaked_blocks: int | None
    complaints: list[str]

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        counts = self.tally.counts
        nothing = not (counts["lost"] or counts["duplicated"] or counts["wrong"])
        flat = all(one.is_flat for one in self.growths)
        return nothing and self.leaked_blocks == 0 and flat and not self.complaints

    @property
    def line(self) -> str:
        """The last line."""
        counts = self.tally.counts
        slope = max(one.slope_kb for one in self.growths)
        return (
            f"lost={counts['lost']} duplicated={counts['duplicated']} wrong={counts['wrong']} "
            f"leaked_blocks={'?' if self.leaked_blocks is None else self.leaked_blocks} "
            f"rss_slope={slope:.0f}KB/min streams={self.streams} finished={counts['finished']} "
            f"aborted={counts['aborted']}"
        )


async def soak(options: argparse.Namespace, offline: Offline, log: Path) -> Outcome:
    """Start a server, let everybody at it, and look at what is left."""
    served = await Served.start(options.runner, options.plugin, log)
    tally, complaints = Tally(), []
    leaked, num_preemptions = None, 0
    scale = Scale(served.pid)
    scripted = options.runner == "scripted"
    draws = [Draws(offline, options.seed, each, scripted) for each in range(options.streams)]
    started = time.monotonic()
    until, swap_until = started + options.seconds, started + LAST_SWAP * options.seconds
    beside = [
        asyncio.create_task(scale.run()),
        asyncio.create_task(served.meddle(Random(options.seed), swap_until)),
        asyncio.create_task(show(tally, options.seconds)),
    ]
    try:
        await asyncio.gather(*(Client(served.port, each, tally).run(until) for each in draws))
        complaints += await stopped(beside)
        leaked = await served.leaked_blocks()
        num_preemptions = await served.num_preemptions()
    except (OSError, EOFError, RuntimeError) as error:
        complaints.append(f"{type(error).__name__}: {error}")
    finally:
        sentence = await served.end()
    complaints += [*served.refusals, *([sentence] if sentence else []), *tracebacks(log)]
    return Outcome(
        streams=options.streams,
        tally=tally,
        growths=scale.growths(),
        memory=scale.samples,
        num_swaps=served.num_swaps,
        num_preemptions=num_preemptions,
        leaked_blocks=leaked,
        complaints=complaints,
    )


async def stopped(tasks: list[asyncio.Task[None]]) -> list[str]:
    """Cancel them; sentences on those that had failed."""
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return [f"{type(end).__name__}: {end}" for end in ends if isinstance(end, Exception)]


def tracebacks(log: Path) -> list[str]:
    """What the server's log has from the first traceback on."""
    said = log.read_text(errors="replace")
    if "Traceback" not in said:
        return []
    return [f"the server's log has a traceback:\n{said[said.index('Traceback') :][:5000]}"]


async def show(tally: Tally, seconds: float) -> None:
    """A bar of the time, and counts beside it, until cancelled."""
    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    started = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=seconds)
        while True:
            told = " ".join(f"{name}={count}" for name, count in sorted(tally.counts.items()))
            progress.update(task, completed=time.monotonic() - started, description=told)
            await asyncio.sleep(0.5)


def report(outcome: Outcome) -> None:
    """Everything; the last line sums it up."""
    for told in (*outcome.tally.told, *outcome.complaints):
        print(told)
    for one in outcome.growths:
        verdict = "flat" if one.is_flat else "GROWS"
        print(
            f"{one.name}: {one.mean_kb / 1024:.0f} MB, {one.slope_kb:+.0f} KB a minute: {verdict}"
        )
    refused = outcome.tally.counts["refused"]
    print(f"refused={refused} swaps={outcome.num_swaps} preemptions={outcome.num_preemptions}")
    print(outcome.line, flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=200, help="clients at once")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long they call")
    parser.add_argument("--runner", choices=["scripted", "torch"], default="scripted")
    parser.add_argument("--plugin", action="append", default=[], help="always in the stack, on top")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write counts and memory here")
    options = parser.parse_args()
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: {options.json.parent} is not a directory")
    for name in ("streams", "seconds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: got {getattr(options, name)}, allowed: at least 1")
    offline = Offline.open(options.runner, KNOWN_SOURCES)
    with tempfile.TemporaryDirectory(prefix="headway-soak-") as folder:
        limit_s = options.seconds + 3 * MOST_CALL_S
        run = asyncio.wait_for(soak(options, offline, Path(folder) / "log"), limit_s)
        outcome = asyncio.run(run)
    if options.json:
        figures = {"counts": outcome.tally.counts, "memory_kb": outcome.memory}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    report(outcome)
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
