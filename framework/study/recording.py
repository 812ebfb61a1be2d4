"""StepRecording: every step of a run in a file, so that its decisions can be questioned.

A recording is gzip of JSON lines: a header (all that it takes to repeat the run), one line a step,
and a last line. Empty fields are left out. A step's line:

    step, time    its number; seconds on the virtual clock at its beginning, when the one before
                  it had ended
    arrived       [[request, seconds]] since the line before
    ended         [[request, how, seconds, output tokens]] since the line before
    running, waiting, queue, free   what a policy saw at the beginning: how many run and wait, the
                  first of those that wait, free KV blocks
    plan          {request: tokens} in order
    admitted      [[request, tokens from the cache, whether it had run before]]
    partial       planned requests that do not reach their last known token, so sample nothing
    loading       requests whose external KV is on its way
    refused       {request: SLOT, BUDGET, BLOCKS or GATE}
    victims       [[request, mode, tokens lost, whether a waiting request took its place]]
    left, used    token budget that was not handed out; KV blocks in use after the step was planned
"""

from __future__ import annotations

import gzip
import json
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import attrs
from attrs import define, field

from framework.errors import ConfigError
from framework.hookspecs import hookimpl
from framework.loading import plugin_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from framework.config import SchedulerConfig
    from framework.latency import LinearLatency
    from framework.loading import Spec
    from framework.output import SchedulerOutput
    from framework.protocols import Hit, WaitingView
    from framework.reports import Setup
    from framework.request import PreemptMode, Request
    from framework.study.workload import Workload
    from framework.view import StepView

FORMAT = 1
SHOWN_OF_QUEUE = 8
_LEVEL = 3
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

Sink: TypeAlias = "Callable[[str], object]"
"""Takes the lines of a recording, one after another."""


def header_of(
    workload: Workload,
    stack: Sequence[Spec],
    config: SchedulerConfig,
    latency: LinearLatency,
    predicts: LinearLatency | None,
    **options: Any,
) -> dict[str, Any]:
    """All that it takes to repeat a run; a plugin given as an object is kept by name alone."""
    return {
        "headway": version("headway"),
        "format": FORMAT,
        "stack": [spec if isinstance(spec, str) else None for spec in stack],
        "names": [spec if isinstance(spec, str) else plugin_name(spec) for spec in stack],
        "config": attrs.asdict(config),
        "latency": latency.as_dict(),
        "predicts": None if predicts is None else predicts.as_dict(),
        "options": options,
        "workload": {
            "name": workload.name,
            "digest": workload.digest,
            "source": dict(workload.source),
            "counts": dict(workload.counts),
            "tenant_weights": dict(workload.tenant_weights),
            "arrivals": [attrs.astuple(arrival) for arrival in workload.arrivals],
        },
    }


@define(eq=False)
class StepRecording:
    """A plugin that writes down every step; it decides nothing. It stands last in its stack.

    Args:
        sink: takes the lines; nothing of a step is kept once its line is written.
        header: see `header_of`.
    """

    name = "step_recording"

    sink: Sink
    header: Mapping[str, Any]
    num_steps: int = field(default=0, init=False)
    _setup: Setup | None = field(default=None, init=False)
    _arrived: list[tuple[str, float]] = field(factory=list, init=False)
    _ended: list[tuple[str, str, float, int]] = field(factory=list, init=False)
    _admitted: dict[str, tuple[str, int, bool]] = field(factory=dict, init=False)
    _victims: list[tuple[str, str, int, bool]] = field(factory=list, init=False)
    _queue: list[str] = field(factory=list, init=False)
    _free: int | None = field(default=None, init=False)
    _displaced: bool = field(default=False, init=False)

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """The stack stands: begin."""
        self._setup = setup
        self.sink(_encode(self.header))

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        """For the next line."""
        self._arrived.append((request.request_id, request.arrival_time))

    @hookimpl
    def request_finished(self, request: Request) -> None:
        """For the next line."""
        assert self._setup is not None
        now, count = self._setup.clock.now(), request.num_output_tokens
        self._ended.append((request.request_id, request.status.value, now, count))

    @hookimpl
    def pick_rejected(self, waiting: WaitingView, step: StepView) -> None:
        """Sheds nobody: it sees the queue before anything is decided."""
        self._queue = [request.request_id for request in islice(waiting, SHOWN_OF_QUEUE)]
        self._free = None if step.kv is None else step.kv.num_free_blocks
        self._admitted.clear()
        self._victims.clear()

    @hookimpl
    def preempt_mode(self, displaced: bool) -> None:
        """Has no opinion: it hears for whom the next victim makes room."""
        self._displaced = displaced

    @hookimpl
    def request_admitted(self, request: Request, hit: Hit, resumed: bool) -> None:
        """Of this step."""
        name = request.request_id
        self._admitted[name] = (name, hit.num_tokens, resumed)

    @hookimpl
    def request_preempted(self, request: Request, mode: PreemptMode, num_lost_tokens: int) -> None:
        """Of this step; one that had just been admitted was not."""
        self._admitted.pop(request.request_id, None)
        self._victims.append((request.request_id, mode.value, num_lost_tokens, self._displaced))

    @hookimpl
    def step_planned(self, output: SchedulerOutput, step: StepView) -> None:
        """Write the step's line."""
        kv, planned = step.kv, output.num_scheduled_tokens
        fields: dict[str, Any] = {
            "arrived": self._arrived,
            "ended": self._ended,
            "queue": self._queue,
            "plan": planned,
            "admitted": list(self._admitted.values()),
            "partial": [
                request.request_id
                for request in step.planned_requests
                if request.num_computed_tokens + planned[request.request_id]
                < request.num_known_tokens - len(request.spec_token_ids)
            ],
            "loading": [request.request_id for request in step.loading],
            "refused": {request.request_id: why.name for request, why in step.refused.items()},
            "victims": self._victims,
        }
        line: dict[str, Any] = {"step": step.number, "time": step.now}
        line |= {name: value for name, value in fields.items() if value}
        line |= {"running": step.num_running_at_start, "waiting": step.num_waiting_at_start}
        line["left"] = step.budget_left
        if kv is not None:
            line |= {"free": self._free, "used": kv.num_total_blocks - kv.num_free_blocks}
        self.sink(_encode(line))
        self.num_steps += 1
        self._arrived.clear()
        self._ended.clear()

    def close(self, errors: Mapping[str, str], failed: str | None = None) -> None:
        """Write the last line.

        Args:
            errors: {request: why it was refused}.
            failed: why the run ended before its time, or None.
        """
        if self._setup is None:
            return
        last: dict[str, Any] = {"end": self._setup.clock.now(), "steps": self.num_steps}
        fields = {"arrived": self._arrived, "ended": self._ended, "errors": dict(errors)}
        last |= {name: value for name, value in fields.items() if value}
        self.sink(_encode(last if failed is None else {**last, "failed": failed}))


@define(eq=False)
class RecordingFile:
    """A sink: gzip without name and time, so that equal runs make equal files."""

    path: Path
    _file: IO[bytes] | None = field(default=None, init=False)
    _zipped: gzip.GzipFile | None = field(default=None, init=False)

    def __call__(self, line: str) -> None:
        """Write a line; the first one opens the file."""
        if self._zipped is None:
            try:
                self._file = self.path.open("wb")
            except OSError as error:
                raise ConfigError(f"record: {self.path} cannot be written: {error}") from error
            self._zipped = gzip.GzipFile("", "wb", _LEVEL, self._file, mtime=0)
        self._zipped.write(line.encode())
        self._zipped.write(b"\n")

    def close(self) -> None:
        """Complete the file."""
        if self._zipped is not None and self._file is not None:
            self._zipped.close()
            self._file.close()


@contextmanager
def recording_to(
    record: str | Path | Sink | None,
    header: Callable[[], Mapping[str, Any]],
    errors: Mapping[str, str],
) -> Iterator[list[StepRecording]]:
    """The plugin for a stack, in a list that is empty if nothing is to be recorded.

    Args:
        record: a file, or what takes the lines.
        header: makes the first line; see `header_of`.
        errors: {request: why it was refused}, as it stands at the end of the run.
    """
    if record is None:
        yield []
        return
    file = None if callable(record) else RecordingFile(Path(record))
    recording = StepRecording(file or record, header())  # type: ignore[arg-type]
    failed: str | None = None
    try:
        yield [recording]
    except BaseException as error:
        failed = f"{type(error).__name__}: {error}"
        raise
    finally:
        recording.close(errors, failed)
        if file is not None:
            file.close()
