"""Random schedules with every check, without end: `make fuzz STEPS=1000000`.

    python -m tests.machine.fuzz --steps 1000000 --seed 7
    python -m tests.machine.fuzz --seed 7 --episode 1234      one episode again

Each episode has settings, requests and moves of its own, all drawn from its seed and number; in
every other one the stack is swapped now and then.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from multiprocessing import get_context
from random import Random
from typing import Final

from attrs import frozen

from tests.machine.settings import Settings
from tests.machine.wishes import Wish
from tests.machine.world import MOST_LIVE, World

CHUNK: Final = 10
"""Episodes of one piece of work."""
SWAP_SHARE: Final = 0.05
"""Swaps a move, in episodes with an odd number."""
ENOUGH: Final = 20
"""Failures after which it is no use to go on."""


@frozen
class Piece:
    """What a piece of work came to."""

    num_steps: int
    failures: list[tuple[int, str]]


def run_episode(seed: int, episode: int) -> int:
    """Run one; returns its number of steps."""
    random, swaps = Random(f"{seed}/{episode}"), Random(f"swaps/{seed}/{episode}")
    world = World(Settings.drawn(random))
    for _ in range(random.choice((30, 200, 800))):
        draw = random.random()
        if draw < 0.25 and len(world.scheduler.requests) < MOST_LIVE:
            world.add(Wish.drawn(random))
        elif draw < 0.29:
            world.abort(f"r{random.randrange(11)}")
        else:
            world.step()
        if episode % 2 and swaps.random() < SWAP_SHARE:
            world.swap()
    world.drain()
    return world.num_steps


def run_piece(work: tuple[int, int]) -> Piece:
    """Run the episodes of one piece."""
    seed, first = work
    num_steps, failures = 0, []
    for episode in range(first, first + CHUNK):
        try:
            num_steps += run_episode(seed, episode)
        except Exception:
            failures.append((episode, traceback.format_exc(limit=-4)))
    return Piece(num_steps, failures)


def run(steps: int, seed: int, processes: int) -> int:
    """Run at least so many steps; returns the number of failures."""
    num_steps = num_failures = first = 0
    started = time.monotonic()
    with get_context("spawn").Pool(processes) as pool:
        while num_steps < steps and num_failures < ENOUGH:
            works = [(seed, first + index * CHUNK) for index in range(8 * processes)]
            first += len(works) * CHUNK
            for piece in pool.imap_unordered(run_piece, works):
                num_steps += piece.num_steps
                num_failures += len(piece.failures)
                for episode, text in piece.failures:
                    again = f"python -m tests.machine.fuzz --seed {seed} --episode {episode}"
                    print(f"{text}again: {again}\n", flush=True)
            rate = num_steps / (time.monotonic() - started)
            print(f"{num_steps} of {steps} steps, {rate:.0f} a second", flush=True)
    done = steps if num_steps >= steps else num_steps
    print(f"steps={done} failures={num_failures}")
    return num_failures


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000, help="steps to run")
    parser.add_argument("--seed", type=int, default=0, help="seed of all episodes")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--episode", type=int, help="run this one alone, and let it raise")
    arguments = parser.parse_args()
    if arguments.episode is not None:
        print(Settings.drawn(Random(f"{arguments.seed}/{arguments.episode}")))
        num_steps = run_episode(arguments.seed, arguments.episode)
        print(f"steps={num_steps} failures=0")
        return 0
    return 1 if run(arguments.steps, arguments.seed, arguments.processes) else 0


if __name__ == "__main__":
    sys.exit(main())
