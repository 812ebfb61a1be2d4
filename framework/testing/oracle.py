"""Recordings on disk: read them, replay each, say which differ. What `headway oracle` does."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from framework.errors import ConfigError, PluginError
from framework.request import Request
from framework.testing.differences import compare
from framework.testing.replay import CONFIG_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from framework.testing.differences import Difference

FORMAT: Final = "sched-oracle/1"
PATTERN: Final = "*.json.gz"
TYPES: Final = {
    "name": str,
    "config": dict,
    "end": str,
    "num_steps": int,
    "final": dict,
    "request_state_fields": list,
    "steps": list,
    "scenario": dict,
}
REQUEST_TYPES: Final = {
    "id": str,
    "arrive_step": int,
    "arrival_time": float,
    "prompt_token_ids": list,
    "output_token_ids": list,
    "max_tokens": int,
}
OPTIONAL_TYPES: Final = {
    "abort_at_step": int,
    "stop_token_ids": list,
    "priority": int,
    "accept_counts": list,
    "draft_lens": list,
    "remote": dict,
}
"""What a request may have besides; null stands for nothing."""


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
    _check_parts(str(path), recording)
    return recording


def _check_parts(path: str, recording: Mapping[str, Any]) -> None:
    """Everything that a replay reads is there; what the steps hold is for the comparison."""
    _check_types(path, recording, TYPES)
    _require(f"{path}: config", recording["config"], CONFIG_KEYS)
    _check_types(f"{path}: scenario", recording["scenario"], {"requests": list})
    for index, request in enumerate(recording["scenario"]["requests"]):
        _check_request(f"{path}: scenario.requests[{index}]", request)
    for name in recording["request_state_fields"]:
        if not isinstance(name, str) or not hasattr(Request, name):
            raise RecordingError(f"{path}: request_state_fields: a request has no {name!r}")


def _check_request(where: str, request: Any) -> None:
    if not isinstance(request, dict):
        raise RecordingError(f"{where}: got {type(request).__name__}, allowed: dict")
    _check_types(where, request, REQUEST_TYPES)
    _check_types(where, request, OPTIONAL_TYPES, optional=True)
    for key, values in request.items():
        if isinstance(values, list) and not all(type(value) is int for value in values):
            raise RecordingError(f"{where}: {key}: got {values!r}, allowed: a list of int")
    if not request["output_token_ids"]:
        raise RecordingError(f"{where}: output_token_ids: got [], allowed: one token or more")


def _require(where: str, mapping: Mapping[str, Any], keys: Iterable[str]) -> None:
    missing = [key for key in keys if key not in mapping]
    if missing:
        raise RecordingError(f"{where}: lacks {', '.join(missing)}")


def _check_types(
    where: str, mapping: Mapping[str, Any], types: Mapping[str, type], *, optional: bool = False
) -> None:
    if not optional:
        _require(where, mapping, types)
    for key, expected in types.items():
        value = mapping.get(key)
        fits = isinstance(value, (int, float) if expected is float else expected)
        if not (fits or (optional and value is None)):
            got = type(value).__name__
            raise RecordingError(f"{where}: {key}: got {got}, allowed: {expected.__name__}")


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
    except (ConfigError, PluginError) as error:
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
