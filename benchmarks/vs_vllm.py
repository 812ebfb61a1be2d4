"""The step loop against the scheduler of vLLM's V1 engine, in turn, under the same loads.

    python benchmarks/vs_vllm.py --vllm-python PATH --json FILE

PATH is a Python that can import vLLM; README.md in this folder says how to get one. The other
side's loads are those of the script named by --peer-script, one run at a time. Both sides are
timed without a model: microseconds of `schedule` and `update_from_output` together. The two
take turns, run by run, so that a drift of the machine meets both.

Exit status: 0 = every limit is kept, 1 = one is not, 2 = bad input.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import loads
from attrs import define, field, frozen
from peer import InputError, Peer
from timing import Run, in_fresh_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PEER_SCRIPT = Path("../shared/oracle/bench_vllm.py")
FACTS = (
    "steps_per_run", "preemptions", "tokens_per_step", "requests_per_step", "steps", "hit_tokens"
)  # fmt: skip


@frozen
class Load:
    """One load on both sides.

    Attributes:
        name: what tables and files call it.
        ours: runs it once.
        theirs: name and arguments of the peer script's function.
        limit: most that ours may cost as a share of theirs, or None.
    """

    name: str
    ours: Callable[[], Run]
    theirs: tuple[str, list[Any]]
    limit: float | None = None


@define
class Outcome:
    """Microseconds of every run of one load, ours and theirs: (median, mean) over its steps."""

    load: Load
    ours: list[tuple[float, float]] = field(factory=list)
    vllm: list[tuple[float, float]] = field(factory=list)
    halves: list[tuple[float, float]] = field(factory=list)
    differing: dict[str, tuple[float, float]] = field(factory=dict)

    def ratios(self) -> tuple[float, float]:
        """Ours as a share of theirs: of the medians, of the means."""
        ours, vllm = _middle(self.ours), _middle(self.vllm)
        return ours[0] / vllm[0], ours[1] / vllm[1]

    @property
    def is_kept(self) -> bool:
        """The limit is kept, by medians and by means, and both sides did the same."""
        limit = self.load.limit
        return not self.differing and (limit is None or max(self.ratios()) <= limit)

    def as_dict(self) -> dict[str, Any]:
        """One entry of the JSON file."""
        ours, vllm = _middle(self.ours), _middle(self.vllm)
        schedule_us, update_us = _middle(self.halves)
        ratio, ratio_mean = self.ratios()
        figures = {
            "ours_us": ours[0],
            "vllm_us": vllm[0],
            "ours_us_mean": ours[1],
            "vllm_us_mean": vllm[1],
            "ours_schedule_us": schedule_us,
            "ours_update_us": update_us,
        }
        return {
            "load": self.load.name,
            **{name: round(value, 2) for name, value in figures.items()},
            "ratio": round(ratio, 4),
            "ratio_mean": round(ratio_mean, 4),
            "limit": self.load.limit,
            "ok": self.is_kept,
            "differing": self.differing,
            "ours_us_runs": [round(one, 2) for one, _ in self.ours],
            "vllm_us_runs": [round(one, 2) for one, _ in self.vllm],
        }


def _middle(runs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return median(one for one, _ in runs), median(two for _, two in runs)


def all_loads() -> list[Load]:
    """Every load, in the order of the table."""
    found = [
        Load(
            f"decode {number}, caching {_word(caching)}",
            partial(loads.decode, number, caching),
            ("bench_decode", [number, caching, False]),
            1 / 8 if number in (256, 1024) else None,
        )
        for number in (1, 16, 64, 256, 1024)
        for caching in (False, True)
    ]
    found += [
        Load(
            f"mixed, caching {_word(caching)}",
            partial(loads.mixed, caching),
            ("bench_mixed", [caching]),
            1 / 4,
        )
        for caching in (False, True)
    ]
    variants = ((False, "fcfs", 0.6), (True, "fcfs", 0.6), (False, "priority", 0.6),
                (False, "fcfs", 0.2), (True, "fcfs", 0.2))  # fmt: skip
    found += [
        Load(
            f"thrash {policy} {share:.0%}, caching {_word(caching)}",
            partial(loads.thrash, caching, policy, share),
            ("bench_thrash", [caching, policy, share]),
        )
        for caching, policy, share in variants
    ]
    found.append(Load("prefix-heavy, per request", loads.prefix_heavy, ("bench_prefix", []), 1 / 2))
    return found


def _word(caching: bool) -> str:
    return "on" if caching else "off"


def take_turn(outcome: Outcome, peer: Peer, *, ours_first: bool) -> None:
    """One run on each side."""
    if ours_first:
        ours = in_fresh_process(outcome.load.ours)
        theirs = peer.run(*outcome.load.theirs)
    else:
        theirs = peer.run(*outcome.load.theirs)
        ours = in_fresh_process(outcome.load.ours)
    outcome.ours.append((ours.median_us, ours.mean_us))
    outcome.halves.append((median(ours.schedule_us), median(ours.update_us)))
    if "sum_us" in theirs:
        outcome.vllm.append((theirs["sum_us"], theirs["sum_us_mean"]))
    else:
        outcome.vllm.append((theirs["all_us_per_request"], theirs["all_us_per_request"]))
    for name in FACTS:
        if name in theirs and ours.facts[name] != theirs[name]:
            outcome.differing[name] = (ours.facts[name], theirs[name])


def measure(chosen: Sequence[Load], peer: Peer, repeats: int) -> list[Outcome]:
    """Run every load `repeats` times on both sides; who begins changes from run to run."""
    outcomes = [Outcome(load) for load in chosen]
    total = repeats * len(outcomes)
    for done in range(total):
        outcome = outcomes[done % len(outcomes)]
        _progress(f"run {done + 1} of {total}: {outcome.load.name}")
        take_turn(outcome, peer, ours_first=(done // len(outcomes)) % 2 == 0)
    _progress("")
    return outcomes


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Medians, means and ratios, one load a line."""
    print(f"{'':32}{'median, us':>19}{'':9}{'mean, us':>18}")
    heads = ("ours", "vLLM", "ratio", "ours", "vLLM", "ratio", "limit")
    print(f"{'load':32}" + "".join(f"{head:>9}" for head in heads))
    for outcome in outcomes:
        one = outcome.as_dict()
        limit = one["limit"]
        cells = [
            f"{one['ours_us']:9.1f}{one['vllm_us']:9.1f}{one['ratio']:9.3f}",
            f"{one['ours_us_mean']:9.1f}{one['vllm_us_mean']:9.1f}{one['ratio_mean']:9.3f}",
            f"{'':9}" if limit is None else f"{limit:9.3f}",
            "" if outcome.is_kept else "  missed",
        ]
        print(f"{one['load']:32}" + "".join(cells))
        for name, (ours, theirs) in outcome.differing.items():
            print(f"    not the same load: {name} is {ours} here and {theirs} there")


def headline(outcomes: Sequence[Outcome], version: str) -> str:
    """The last line: the worst ratio of every kind of load that has a limit."""
    limited = [outcome for outcome in outcomes if outcome.load.limit is not None]
    worst: dict[str, float] = {}
    for outcome in limited or outcomes:
        kind = outcome.load.name.split(",")[0]
        worst[kind] = max(worst.get(kind, 0.0), *outcome.ratios())
    shares = ", ".join(f"{kind} 1/{1 / ratio:.1f}" for kind, ratio in worst.items())
    kept = sum(outcome.is_kept for outcome in limited)
    return f"of the cost of vLLM {version}: {shares}; {kept} of {len(limited)} limits kept"


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm-python", type=Path, required=True, metavar="PATH")
    parser.add_argument("--peer-script", type=Path, default=PEER_SCRIPT, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each load (default: 5)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="loads whose name has this in it"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats: got {options.repeats}, allowed: at least 1")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say by the exit status whether the limits are kept."""
    options = _parsed(arguments)
    chosen = [load for load in all_loads() if options.only in load.name]
    try:
        if not chosen:
            names = "; ".join(load.name for load in all_loads())
            raise InputError(f"--only: {options.only!r} is in no name of a load ({names})")
        if options.json and not options.json.absolute().parent.is_dir():
            raise InputError(f"--json: {options.json.parent} is not a directory")
        peer = Peer(options.vllm_python, options.peer_script)
        try:
            outcomes = measure(chosen, peer, options.repeats)
        finally:
            peer.close()
    except InputError as error:
        print(f"vs_vllm: error: {error}", file=sys.stderr)
        return 2
    print_table(outcomes)
    kept = all(outcome.is_kept for outcome in outcomes)
    if options.json:
        figures = {
            "peer": f"vllm {peer.version}",
            "python": platform.python_version(),
            "machine": platform.machine(),
            "repeats": options.repeats,
            "ok": kept,
            "loads": [outcome.as_dict() for outcome in outcomes],
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(headline(outcomes, peer.version))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
