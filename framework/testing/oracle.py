"""Recordings on disk: read them, replay each, say which differ. What `headway oracle` does."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from framework.errors import ConfigError
from framework.testing.differences import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from framework.testing.differences import Difference

FORMAT: Final = "sched-oracle/1"
PATTERN: Final = "*.json.gz"
KEYS: Final = (
    "name",
    "config",
    "end",
    "num_steps",
    "final",
    "request_state_fields",
    "steps",
    "scenario",
)


class RecordingError(ConfigError):
    """A recording, or a directory of them, cannot be read."""


@frozen
class Result:
    """One recording and where our scheduler departs from it, if it does."""

    name: str
    difference: Difference | None


def read_recording(path: Path) -> dict[str, Any]:
    """Read one recording.

    Raises:
        RecordingError: it is not a complete recording; the message names file and fault.
    """
    try:
        recording = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise RecordingError(f"{path}: not a recording: {error}") from error
    if not isinstance(recording, dict) or recording.get("format") != FORMAT:
        got = recording.get("format") if isinstance(recording, dict) else type(recording).__name__
        raise RecordingError(f"{path}: format: got {got!r}, allowed: {FORMAT!r}")
    missing = [key for key in KEYS if key not in recording]
    if missing:
        raise RecordingError(f"{path}: the recording lacks {', '.join(missing)}")
    return recording


def recordings_in(directory: Path) -> list[Path]:
    """The recordings of a directory, sorted by name.

    Raises:
        RecordingError: it is no directory, or holds none.
    """
    if not directory.is_dir():
        raise RecordingError(f"{directory}: no such directory")
    paths = sorted(directory.glob(PATTERN))
    if not paths:
        raise RecordingError(f"{directory}: holds no recording; allowed: a folder of {PATTERN}")
    return paths


def check_recording(path: Path) -> Result:
    """Read and replay one recording.

    Raises:
        RecordingError: it cannot be read, or has not the form that its format promises.
    """
    recording = read_recording(path)
    try:
        return Result(str(recording["name"]), compare(recording))
    except KeyError as error:
        raise RecordingError(f"{path}: the recording lacks {error}") from error
    except ConfigError as error:
        raise RecordingError(f"{path}: config: {error}") from error


def check_directory(directory: Path) -> Iterator[tuple[str, Difference | None]]:
    """Replay each recording of a directory, in order of their names, one at a time.

    Raises:
        RecordingError: there is none, or one cannot be read.
    """
    for path in recordings_in(directory):
        result = check_recording(path)
        yield result.name, result.difference


def replay_directory(
    directory: Path, on_progress: Callable[[int, int], None] | None = None
) -> list[Result]:
    """Replay all recordings of a directory; `on_progress(done, all)` is called after each.

    Raises:
        RecordingError: there is none, or one cannot be read.
    """
    total = len(recordings_in(directory))
    results = []
    for name, difference in check_directory(directory):
        results.append(Result(name, difference))
        if on_progress is not None:
            on_progress(len(results), total)
    return results


def summary(results: Sequence[Result]) -> str:
    """`139 same, 0 differ`."""
    num_differing = sum(result.difference is not None for result in results)
    return f"{len(results) - num_differing} same, {num_differing} differ"
