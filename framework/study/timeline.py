"""Timeline: a recording as Trace Event JSON, which Perfetto and chrome://tracing open.

One track a request (waiting, each chunk of its prompt, decoding, preemptions), one of the steps,
and counters: token budget, KV blocks in use, queue. Source: "Trace Event Format",
the Chromium project; phases M (names), X (slices), i (instants), C (counters); microseconds.
"""

from __future__ import annotations

import gzip
import json
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from attrs import define, field

from framework.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from framework.study.recorded import Lasting, Recorded

REQUESTS, SCHEDULER = 1, 2
"""Process ids of the two groups of tracks."""

Event: TypeAlias = "dict[str, Any]"
"""One entry of `traceEvents`."""


def write_timeline(recorded: Recorded, path: Path) -> int:
    """Write the file, compressed if its name ends in .gz; returns the number of events.

    Raises:
        ConfigError: it cannot be written.
    """
    if path.exists() and path.samefile(recorded.path):
        raise ConfigError(f"timeline: got {path}, allowed: another file than the recording")
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "wt", encoding="utf-8") as file:
            return _write(events_of(recorded), file)
    except OSError as error:
        raise ConfigError(f"timeline: {path} cannot be written: {error}") from error


def _write(events: Iterator[Event], file: IO[str]) -> int:
    count = 0
    file.write('{"displayTimeUnit":"ms","traceEvents":[')
    for event in events:
        file.write(",\n" if count else "\n")
        json.dump(event, file, separators=(",", ":"), allow_nan=False)
        count += 1
    file.write("\n]}\n")
    return count


def events_of(recorded: Recorded) -> Iterator[Event]:
    """The events, one after another; what is kept is a slice for each request that lives."""
    yield _named("process_name", REQUESTS, 0, f"requests under {recorded.policy}")
    yield _named("process_name", SCHEDULER, 0, "scheduler")
    yield _named("thread_name", SCHEDULER, 1, "steps")
    tracks = Tracks(
        {row[0]: track for track, row in enumerate(recorded.header["workload"]["arrivals"], 1)},
        recorded.config.token_budget,
    )
    end = 0.0
    for lasting in recorded.lasting():
        end = lasting.end
        yield from tracks.step(lasting)
    yield from tracks.ends(recorded.last)
    yield from tracks.close(end, recorded.last.get("errors", {}))


@define(eq=False)
class Slice:
    """A slice that may grow: what, since when, until when (None = until something else begins)."""

    what: str
    since: float
    until: float | None = None
    tokens: int = 0


@define(eq=False)
class Tracks:
    """Slices in the making.

    Args:
        numbers: {request: number of its track}.
        budget: tokens of a step.
    """

    numbers: Mapping[str, int]
    budget: int
    _open: dict[str, Slice] = field(factory=dict, init=False)

    def step(self, lasting: Lasting) -> Iterator[Event]:
        """What a step adds."""
        step, end = lasting.step, lasting.end
        now = step["time"]
        for name, time in step.get("arrived", ()):
            yield _named("thread_name", REQUESTS, self.numbers[name], name)
            self._open[name] = Slice("waiting", time)
        yield from self.ends(step)
        for name, mode, lost, displaced in step.get("victims", ()):
            yield from self._begin(name, Slice("waiting again", now))
            yield self._instant(name, f"preempted: {mode}", now, lost=lost, displaced=displaced)
        partial = set(step.get("partial", ()))
        for name, tokens in step.get("plan", {}).items():
            what = "decode" if tokens == 1 and name not in partial else "prefill"
            yield from self._begin(name, Slice(what, now, end, tokens))
        if step.get("plan"):
            yield _slice(SCHEDULER, 1, "step", now, end, step=step["step"])
        yield from self._counters(step)

    def ends(self, step: Mapping[str, Any]) -> Iterator[Event]:
        """The tracks of those that have ended before a step."""
        for name, how, time, count in step.get("ended", ()):
            yield from self._finish(name, time)
            yield self._instant(name, f"ended: {how}", time, tokens=count)

    def close(self, end: float, refused: Mapping[str, str]) -> Iterator[Event]:
        """The recording is through."""
        for name in list(self._open):
            if name not in refused:
                yield from self._finish(name, end)

    def _begin(self, name: str, new: Slice) -> Iterator[Event]:
        """Something else, or more of the same."""
        old = self._open[name]
        if old.what == new.what == "decode" and old.until == new.since:
            old.until = new.until
            old.tokens += new.tokens
            return
        yield from self._finish(name, new.since)
        self._open[name] = new

    def _finish(self, name: str, time: float) -> Iterator[Event]:
        old = self._open.pop(name)
        until = time if old.until is None else old.until
        tokens = {"tokens": old.tokens} if old.tokens else {}
        yield _slice(REQUESTS, self.numbers[name], old.what, old.since, until, **tokens)

    def _instant(self, name: str, what: str, time: float, **about: Any) -> Event:
        place = {"pid": REQUESTS, "tid": self.numbers[name], "ts": _micros(time)}
        return {"name": what, "ph": "i", "s": "t", **place, "args": about}

    def _counters(self, step: Mapping[str, Any]) -> Iterator[Event]:
        counters = {
            "budget": {"used": self.budget - step["left"], "left": step["left"]},
            "queue": {"waiting": step["waiting"]},
            "running": {"planned": len(step.get("plan", ()))},
        }
        if "used" in step:
            counters["KV blocks"] = {"used": step["used"]}
        place = {"pid": SCHEDULER, "tid": 0, "ts": _micros(step["time"])}
        for name, values in counters.items():
            yield {"name": name, "ph": "C", **place, "args": values}


def _named(what: str, process: int, track: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": process, "tid": track, "ts": 0, "args": {"name": name}}


def _slice(process: int, track: int, what: str, since: float, until: float, **about: Any) -> Event:
    start = _micros(since)
    place = {"pid": process, "tid": track, "ts": start, "dur": _micros(max(0.0, until - since))}
    return {"name": what, "ph": "X", **place, "args": about}


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 3)
