"""Source: a workload that any process can make again: a file or a SPEC, and what is done to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from attrs import field, frozen

from framework.errors import ConfigError
from framework.study.classes import Classes
from framework.study.recipe import KINDS, is_spec
from framework.study.shaping import scale_time
from framework.study.synthetic import make_workload
from framework.study.traces import Reading, load_trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from framework.study.workload import Workload


@frozen(kw_only=True)
class Source:
    """Where a workload comes from.

    Attributes:
        text: a trace file, or a SPEC of `synthetic`.
        reading: what is taken of a file; of a SPEC, its `first` and `time_scale` hold too.
        classes: options of `Classes`: tenants, weights, priority, slo.
    """

    text: str
    reading: Reading = field(factory=Reading)
    classes: Mapping[str, Any] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if not is_spec(self.text) and not Path(self.text).is_file():
            raise ConfigError(
                f"workload: got {self.text!r}, allowed: a file that exists, or a SPEC that begins "
                f"with {', '.join(KINDS)}"
            )

        for name in ("format", "columns", "window"):
            if is_spec(self.text) and getattr(self.reading, name):
                raise ConfigError(f"{name}: it goes with a trace, not with {self.text!r}")

    @property
    def is_trace(self) -> bool:
        """Whether it was recorded; then a seed can only vary classes and gaps."""
        return not is_spec(self.text)

    @property
    def is_closed(self) -> bool:
        """Whether users who wait for answers are part of it."""
        return not self.is_trace and any(
            part.strip().startswith("closed") for part in self.text.split(" + ")
        )

    def workload(self, seed: int = 0, *, resample: bool = False, factor: float = 1.0) -> Workload:
        """The workload of a seed.

        Args:
            seed: of all that is drawn.
            resample: whether a trace's gaps are drawn again.
            factor: arrivals are so many times as far apart.

        Raises:
            ConfigError: the file or the SPEC is wrong.
        """
        if self.is_trace:
            classes = Classes(**self.classes)
            made = load_trace(
                self.text, self.reading, classes=classes, seed=seed, resample=resample
            )
        else:
            factor *= self.reading.time_scale
            made = make_workload(self.text, seed=seed, **self.classes)
        if not self.is_trace and self.reading.first is not None:
            made = made.first(self.reading.first)
        return scale_time(made, factor) if factor != 1.0 else made

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return attrs.asdict(self)


def rate_to_vary(source: Source, workload: Workload) -> float:
    """`rate_of`, where arrivals can be pushed together and drawn apart.

    Raises:
        ConfigError: requests come all at once, or users wait for answers.
    """
    rate = rate_of(workload)
    if source.is_closed or rate == float("inf"):
        raise ConfigError(
            "workload: it has no rate that could be varied: its requests come all at once, or "
            "its users wait for answers"
        )
    return rate


def rate_of(workload: Workload) -> float:
    """Requests a second, over the time in which chats begin; infinite if all begin at once."""
    starts = [each.time for each in workload.arrivals if each.parent is None]
    span = starts[-1] - starts[0]
    return (len(workload.arrivals) - 1) / span if span > 0 else float("inf")
