"""What the process boundary adds to a token: the same requests in this process and across it.

    python benchmarks/ipc.py --json F      (a minute on 2 cores; let nothing else run)

No model: the scripted runner, so that all there is to see is the engine's own time. Both ways end
with text. In this process `Front` steps and decodes by turns; across the boundary `AsyncEngine`
decodes while the engine steps, with what the engine's process does besides (every hook is timed).
The two take turns, and who begins alternates.

Then a client that never reads what it is sent, beside one with 32 streams: how fast is that one,
against the same with a neighbour that reads?

Exit status: 0 = within the limits, 1 = not, 2 = bad input.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from neighbours import STREAMS, beside

from framework import SamplingParams
from framework.engine.client import AsyncEngine
from framework.engine.front import Front
from framework.engine.prompts import Prompt
from framework.engine.settings import EngineSettings

TOKENS: Final = {1: 600, 32: 200, 256: 100}
"""Streams, and the tokens of each."""
LIMITS_US: Final = {1: 150.0, 256: 20.0}
SLOWEST: Final = 0.8
"""Least share of its speed that a neighbour who does not read may leave to a client."""
PROMPT: Final = tuple(range(5, 15))
SETTINGS: Final = EngineSettings(
    model="smollm2",
    runner="scripted",
    num_blocks=8192,
    max_num_seqs=256,
    max_num_batched_tokens=2048,
)


def prompts(num_streams: int, num_tokens: int) -> list[Prompt]:
    """What both ways are given."""
    params = SamplingParams(max_tokens=num_tokens, temperature=0, ignore_eos=True)
    return [Prompt(prompt_token_ids=PROMPT, sampling_params=params) for _ in range(num_streams)]


async def inside(front: Front, num_streams: int, num_tokens: int) -> float:
    """Seconds in this process."""
    started = time.perf_counter()
    done = front.run([front.submit(each) for each in prompts(num_streams, num_tokens)])
    taken = time.perf_counter() - started
    assert all(len(each.token_ids) == num_tokens and each.text for each in done)
    return taken


async def across(engine: AsyncEngine, num_streams: int, num_tokens: int) -> float:
    """Seconds across the boundary."""
    started = time.perf_counter()
    streams = [await engine.submit(each) for each in prompts(num_streams, num_tokens)]
    done = await asyncio.gather(*(stream.finish() for stream in streams))
    taken = time.perf_counter() - started
    assert all(len(each.token_ids) == num_tokens and each.text for each in done)
    return taken


async def measure(sizes: dict[int, int], repeats: int) -> list[dict[str, Any]]:
    """Microseconds a token both ways, for each number of streams."""
    model, stack = SETTINGS.open()
    rows: list[dict[str, Any]] = []
    async with await AsyncEngine.start(SETTINGS) as engine:
        with Front(model, stack) as front:
            for num_streams, num_tokens in sizes.items():
                rows.append(await _row(front, engine, num_streams, num_tokens, repeats))
    model.runner.close()
    return rows


async def _row(
    front: Front, engine: AsyncEngine, num_streams: int, num_tokens: int, repeats: int
) -> dict[str, Any]:
    ways: list[tuple[Any, Any]] = [(inside, front), (across, engine)]
    us: dict[Any, list[float]] = {inside: [], across: []}
    for repeat in range(-1, repeats):  # the first one warms up
        for way, target in ways if repeat % 2 else ways[::-1]:
            gc.collect()
            seconds = await way(target, num_streams, num_tokens)
            if repeat >= 0:
                us[way].append(1e6 * seconds / num_streams / num_tokens)
    added = [two - one for one, two in zip(us[inside], us[across], strict=True)]
    limit = LIMITS_US.get(num_streams)
    return {
        "streams": num_streams,
        "tokens": num_tokens,
        "inside_us": median(us[inside]),
        "across_us": median(us[across]),
        "added_us": median(added),
        "added_us_all": sorted(added),
        "limit_us": limit,
        "passed": limit is None or median(added) <= limit,
    }


# ---------------------------------------------------------------------------------------------
# the command
# ---------------------------------------------------------------------------------------------


def report(rows: list[dict[str, Any]], slow: dict[str, Any]) -> bool:
    """Print the figures; whether all limits are kept."""
    print("streams  in-process  own process       added  (least .. most)        limit, us a token")
    for row in rows:
        verdict = "" if row["limit_us"] is None else "PASS" if row["passed"] else "FAIL"
        limit = "" if row["limit_us"] is None else f"{row['limit_us']:.0f}"
        spread = f"({row['added_us_all'][0]:.1f} .. {row['added_us_all'][-1]:.1f})"
        print(
            f"{row['streams']:>7} {row['inside_us']:>11.1f} {row['across_us']:>12.1f} "
            f"{row['added_us']:>11.1f}  {spread:<20} {limit:>7} {verdict}"
        )
    print(
        f"{STREAMS} streams, tokens a second: {slow['tok_s']['none']:.0f} alone, "
        f"{slow['tok_s']['reads']:.0f} beside {STREAMS} more that are read, "
        f"{slow['tok_s']['stuck']:.0f} beside {STREAMS} that are not: ratio {slow['ratio']:.2f} "
        f"of at least {SLOWEST} {'PASS' if slow['passed'] else 'FAIL'}"
    )
    return slow["passed"] and all(row["passed"] for row in rows)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7, help="runs of each way, in turn")
    parser.add_argument("--tokens", type=int, help="tokens of each stream, whatever the number")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args()
    for name in ("repeats", "tokens"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name}: got {getattr(options, name)}, allowed: at least 1")
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: {options.json.parent} is not a directory")
    sizes = {streams: options.tokens or tokens for streams, tokens in TOKENS.items()}
    rows = asyncio.run(measure(sizes, options.repeats))
    slow = asyncio.run(beside(SETTINGS, sizes[STREAMS], options.repeats))
    slow["passed"] = slow["ratio"] >= SLOWEST
    if options.json:
        figures = {"boundary": rows, "slow_client": slow}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if report(rows, slow) else 1


if __name__ == "__main__":
    raise SystemExit(main())
