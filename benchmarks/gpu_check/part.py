"""The inside of a part's process: one item after another while its time lasts.

What an item found is on disk before the next begins. An item that ended its process, or left the
device unusable, stays in the results as such, and a fresh process goes on behind it.
"""

from __future__ import annotations

import json
import time
import traceback
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from attrs import define, field, frozen

from benchmarks.gpu_check.conductor import GO_ON, NO_DEVICE, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from benchmarks.gpu_check.place import Place

Figures: TypeAlias = dict[str, Any]
TRACE_LINES = 12
CUT_OFF = "the process ended, or was ended, in the middle of it"


@frozen
class Item:
    """One thing that a part finds out.

    Attributes:
        name: its key in the results.
        work: finds it.
        least: seconds without which it is not begun.
    """

    name: str
    work: Callable[[], Figures]
    least: float = 0.0


@define(eq=False)
class Check:
    """What a part is given.

    Attributes:
        place: the device.
        directory: for files of its own.
        deadline: of the part, as `time.time()`.
    """

    place: Place
    directory: Path
    deadline: float

    @property
    def left(self) -> float:
        """Seconds."""
        return self.deadline - time.time()


class Part(Protocol):
    """A part's module."""

    def items(self, check: Check) -> Iterable[Item]:
        """In order of importance."""

    def conclude(self, found: dict[str, Figures]) -> Figures:
        """What the items that were found so far say together."""


@define(eq=False)
class Record:
    """The results of one part, in a file that is never half written.

    Args:
        path: of the file.
        conclude: of the part.
        items: what is known already.
    """

    path: Path
    conclude: Callable[[dict[str, Figures]], Figures]
    items: dict[str, Figures] = field(factory=dict)

    @classmethod
    def read(cls, path: Path, conclude: Callable[[dict[str, Figures]], Figures]) -> Record:
        """With what an earlier process of the part left."""
        return cls(path, conclude, json.loads(path.read_text())["items"] if path.is_file() else {})

    def note(self, name: str, figures: Figures) -> None:
        """Keep."""
        self.items[name] = figures
        conclusion = self.conclude(self.items)
        text = json.dumps({"items": self.items, "conclusion": conclusion}, indent=1, default=str)
        temporary = self.path.with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(self.path)


def run_part(part: Part, check: Check, record: Record) -> int:
    """All items that are not in the record yet; the exit status of the process."""
    for item in part.items(check):
        if item.name in record.items:
            continue
        if check.left < item.least or check.left <= 0:
            reason = f"{max(0.0, check.left):.0f} s were left, {item.least:.0f} are needed"
            record.note(item.name, {"skipped": reason})
            say(f"{item.name}: skipped, {reason}")
            continue
        record.note(item.name, {"error": CUT_OFF})
        if not _run_item(item, check, record):
            return GO_ON
    return 0


def _run_item(item: Item, check: Check, record: Record) -> bool:
    """Whether the device can still be used."""
    begun = time.perf_counter()
    try:
        figures = item.work()
        check.place.wait()
    except Exception as error:
        lines = traceback.format_exc().splitlines()
        record.note(item.name, {"error": "\n".join(lines[-TRACE_LINES:])})
        say(f"{item.name}: {type(error).__name__}: {str(error).splitlines()[:1]}")
        return _is_usable(check.place)
    took = round(time.perf_counter() - begun, 2)
    record.note(item.name, {**figures, "took_s": took})
    say(f"{item.name}: {_shown(figures)} ({took} s)")
    return True


def _is_usable(place: Place) -> bool:
    try:
        place.wait()
    except Exception:
        return False
    return True


def _shown(figures: Figures) -> str:
    """The plain ones among the figures, in a line."""
    plain = {name: value for name, value in figures.items() if not isinstance(value, dict | list)}
    return ", ".join(f"{name} {value}" for name, value in plain.items())[:240]


def open_place(is_toy: bool) -> Place:
    """The device.

    Raises:
        SystemExit: there is no GPU.
    """
    import torch  # noqa: PLC0415

    from benchmarks.gpu_check.place import Place  # noqa: PLC0415

    if is_toy:
        torch.set_num_threads(1)
        return Place(torch.device("cpu"), True)
    if not torch.cuda.is_available():
        say("torch finds no GPU here; with --toy everything runs on the CPU, at toy size")
        raise SystemExit(NO_DEVICE)
    return Place(torch.device("cuda"), False)
