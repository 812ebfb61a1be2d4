"""Options of workloads in virtual time, and the records they are gathered into."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from attrs import frozen
from click.core import ParameterSource

from framework.study.classes import Classes
from framework.study.formats import parse_columns
from framework.study.source import Source
from framework.study.traces import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_MAX_LEN = 8192


class ManyNumbers(click.Command):
    """A command in which `--load .5 .7 .95` means three loads."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each further number."""
        repeated: list[str] = []
        after_load = False
        for each in args:
            is_number = after_load and _is_number(each)
            if is_number and repeated[-1] != "--load":
                repeated.append("--load")
            repeated.append(each)
            after_load = each == "--load" or is_number
        return super().parse_args(ctx, repeated)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@frozen(kw_only=True)
class WorkloadOptions:
    """What arrives, and how long steps take."""

    workload: str | None
    first: int | None
    window: tuple[float, float] | None
    time_scale: float
    columns: str | None
    trace_format: str | None
    too_long: str
    tenants: str | None
    weights: str | None
    priorities: str | None
    slo: str | None
    slo_ttft: float | None
    slo_tpot: float | None
    latency: str
    horizon: float | None
    noise: float
    jobs: int | None

    def source(self, max_model_len: int) -> Source:
        """Where the workload comes from, cut to what the server can take.

        Raises:
            ConfigError: an option is wrong.
        """
        return Source(
            text=self.workload or "",
            reading=Reading(
                format=self.trace_format,
                columns=parse_columns(self.columns) if self.columns else {},
                window=self.window,
                first=self.first,
                time_scale=self.time_scale,
                max_len=max_model_len,
                too_long=self.too_long,
            ),
            classes=self._classes(),
        )

    def _classes(self) -> dict[str, Any]:
        slo = self.slo
        if self.slo_ttft is not None or self.slo_tpot is not None:
            if slo is not None:
                raise click.UsageError("give --slo, or --slo-ttft and --slo-tpot")
            parts = (
                "-" if each is None else f"{each:g}" for each in (self.slo_ttft, self.slo_tpot)
            )
            slo = "/".join(parts)
        asked = {
            "tenants": self.tenants,
            "weights": self.weights,
            "priority": self.priorities,
            "slo": slo,
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        Classes(**asked)
        return asked


@frozen(kw_only=True)
class Replication:
    """How often, at which loads, and with which errors of the model."""

    seeds: int
    load: Sequence[float]
    capacity: float | None
    sensitivity: bool


@frozen(kw_only=True)
class Figures:
    """Where figures and recordings go."""

    html: Path | None
    png: Path | None
    record: Path | None


def given(context: click.Context, record: type[Any]) -> dict[str, Any]:
    """The options of a record that the user gave."""
    return {
        name: context.params[name]
        for name in _names(record)
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def refuse_given(context: click.Context, records: Sequence[type[Any]], why: str) -> None:
    """Raise UsageError if the user gave an option that has no meaning here."""
    for record in records:
        for name in given(context, record):
            raise click.UsageError(f"--{name.replace('_', '-')}: {why}")


def limits_of(limits: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The limits that were given without the seed, and the seed."""
    fields = dict(limits)
    seed = fields.pop("seed", 0)
    fields.setdefault("max_model_len", DEFAULT_MAX_LEN)
    return fields, seed


def _names(record: type[Any]) -> list[str]:
    return [field.name for field in attrs.fields(record)]
