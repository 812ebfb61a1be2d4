"""Recorded: a recording read back, a line at a time. What a line holds: see `recording`."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import define, field

from framework.config import SchedulerConfig
from framework.errors import ConfigError, did_you_mean
from framework.latency import LinearLatency, latency_from
from framework.request import Slo
from framework.study.recording import FORMAT
from framework.study.workload import Arrival, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NEEDED = {"stack", "names", "config", "latency", "predicts", "options"}


class Lasting(NamedTuple):
    """A step and the seconds at which it had ended."""

    step: Mapping[str, Any]
    end: float


@define(eq=False)
class Recorded:
    """A recording.

    Args:
        path: of the file.

    Attributes:
        header: its first line.
        last: its last line, known once the steps were read; empty where the file breaks off.

    Raises:
        ConfigError: there is no such file, or it is no recording.
    """

    path: Path = field(converter=Path)
    header: Mapping[str, Any] = field(init=False)
    last: Mapping[str, Any] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        first = next(self.lines(), "")
        header = self._parsed(first) if first else {}
        workload = header.get("workload")
        is_whole = header.keys() >= NEEDED and isinstance(workload, dict) and "digest" in workload
        if header.get("format") != FORMAT or not is_whole:
            raise ConfigError(f"{self.path}: it is no recording of format {FORMAT}")
        self.header = header

    def lines(self) -> Iterator[str]:
        """Every line, the header first; a file that breaks off ends with its last whole line."""
        try:
            with gzip.open(self.path, "rt", encoding="utf-8") as file:
                for line in file:
                    if line.endswith("\n"):
                        yield line[:-1]
        except EOFError:
            return
        except (OSError, zlib.error, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path}: it cannot be read: {error}") from error

    def steps(self) -> Iterator[Mapping[str, Any]]:
        """The steps in order."""
        lines = self.lines()
        next(lines)
        for line in lines:
            fields = self._parsed(line)
            if "step" in fields:
                yield fields
            else:
                self.last = fields

    def lasting(self) -> Iterator[Lasting]:
        """The steps, each with its end: the beginning of the next one."""
        before: Mapping[str, Any] | None = None
        for step in self.steps():
            if before is not None:
                yield Lasting(before, step["time"])
            before = step
        if before is not None:
            yield Lasting(before, self.last.get("end", before["time"]))

    def _parsed(self, line: str) -> Mapping[str, Any]:
        try:
            fields = json.loads(line)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise ConfigError(f"{self.path}: it is no recording: {line[:40]!r} is no JSON object")
        return fields

    @property
    def policy(self) -> str:
        """Its stack as text, the last asked first."""
        return "+".join(self.header["names"])

    @property
    def stack(self) -> Sequence[str]:
        """Its stack, to be built again.

        Raises:
            ConfigError: it was made with plugin objects, which a file cannot hold.
        """
        pairs = zip(self.header["stack"], self.header["names"], strict=True)
        objects = [name for spec, name in pairs if spec is None]
        if objects:
            raise ConfigError(
                f"{self.path}: the stack: got the objects {', '.join(objects)}, allowed: names, "
                "module:attribute or file.py:Name, which a file can hold; or give the stack anew"
            )
        return list(self.header["stack"])

    @property
    def config(self) -> SchedulerConfig:
        """The limits it ran under."""
        return SchedulerConfig.from_mapping(self.header["config"])

    @property
    def latency(self) -> LinearLatency:
        """How long its steps took."""
        return latency_from(self.header["latency"])

    @property
    def predicts(self) -> LinearLatency | None:
        """What its policies predicted with, if that was another model."""
        fields = self.header["predicts"]
        return None if fields is None else latency_from(fields)

    @property
    def options(self) -> Mapping[str, Any]:
        """More arguments of `simulate_policy`."""
        found: Mapping[str, Any] = self.header["options"]
        return found

    @property
    def workload(self) -> Workload:
        """What arrived."""
        fields = dict(self.header["workload"])
        digest = fields.pop("digest")
        made = Workload(**{**fields, "arrivals": [_arrival(row) for row in fields["arrivals"]]})
        if made.digest != digest:
            raise ConfigError(f"{self.path}: its workload is not the one that was recorded")
        return made

    def arrival(self, request_id: str) -> Arrival:
        """A request of the workload.

        Raises:
            ConfigError: there is none of that name.
        """
        rows = self.header["workload"]["arrivals"]
        row = next((row for row in rows if row[0] == request_id), None)
        if row is None:
            close = did_you_mean(request_id, (row[0] for row in rows))
            raise ConfigError(f"{self.path}: it has no request {request_id!r}.{close}")
        return _arrival(row)


def _arrival(row: Sequence[Any]) -> Arrival:
    name, time, prompt, output, prefix, tenant, priority, slo, parent = row
    return Arrival(
        request_id=name,
        time=time,
        prompt_len=prompt,
        output_len=output,
        prefix=tuple((piece, length) for piece, length in prefix),
        tenant=tenant,
        priority=priority,
        slo=None if slo is None else Slo(ttft_s=slo[0], tpot_s=slo[1]),
        parent=parent,
    )
