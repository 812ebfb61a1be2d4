"""A workload from a file that was recorded: a window of it, stretched, cut to length, with classes.

What a seed changes: who sends a request and what was promised, where that is laid over the trace;
and, if asked for, the gaps between arrivals, which are drawn again from the recorded ones in blocks
of consecutive gaps (a circular block bootstrap), so that bursts stay bursts. The order of the
requests and their lengths stay as recorded. `Workload.source` says which.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from attrs import field, frozen

from framework.errors import ConfigError, bad_field
from framework.study.classes import Classes
from framework.study.files import digest_of
from framework.study.formats import Format, Row, read_rows
from framework.study.shaping import resample_gaps
from framework.study.workload import Arrival, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EMPTY = "rows without prompt or output"
CLIPPED = "clipped"
DROPPED = "too long, dropped"
ORPHANS = "chats whose beginning is not there"


def _above_zero(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise bad_field(attribute.name, value, "a number above 0")


def _count_or_none(low: int) -> Any:
    def check(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is not None and (type(value) is not int or value < low):
            raise bad_field(attribute.name, value, f"an int of at least {low}, or None")

    return check


@frozen(kw_only=True)
class Reading:
    """What is taken of a trace, and how.

    Attributes:
        format: a name of `formats`, or None = recognised.
        columns: {field: column} instead of the format's own.
        window: seconds from the first row, (start, end), or None = all.
        first: so many requests at most, or None.
        time_scale: gaps are multiplied by it: 0.5 is twice the load.
        max_len: most tokens of prompt and output, or None.
        too_long: 'clip' or 'drop' what is longer; both are counted.
        chats: whether a request waits for the end of the one before it in its chat (the time
            between the two in the trace then passes after that end); if not, it comes when it came.
    """

    format: str | None = None
    columns: Mapping[str, str] = field(factory=dict)
    window: tuple[float, float] | None = None
    first: int | None = field(default=None, validator=_count_or_none(1))
    time_scale: float = field(default=1.0, validator=_above_zero)
    max_len: int | None = field(default=8192, validator=_count_or_none(2))
    too_long: str = "clip"
    chats: bool = True

    def __attrs_post_init__(self) -> None:
        if self.too_long not in ("clip", "drop"):
            raise bad_field("too_long", self.too_long, "'clip' or 'drop'")
        if self.window is not None and not 0 <= self.window[0] < self.window[1]:
            raise bad_field("window", self.window, "two numbers of seconds, the second larger")


def load_trace(
    path: str | Path,
    reading: Reading | None = None,
    *,
    classes: Classes | None = None,
    seed: int = 0,
    resample: bool = False,
) -> Workload:
    """A workload from a file.

    Args:
        path: CSV or JSONL, plain or .gz.
        reading: what is taken of it; None = all, cut to 8,192 tokens.
        classes: tenants, priorities and SLOs to lay over it.
        seed: of the classes and of the resampled gaps.
        resample: whether the gaps between arrivals are drawn again.

    Raises:
        ConfigError: the file or a row of it is wrong (with file and line), or nothing is left.
    """
    reading, classes = reading or Reading(), classes or Classes()
    form, rows = read_rows(path, reading.format, reading.columns)
    if "time" not in form.columns:
        raise ConfigError(
            f"{path}: no column for time; say which with columns time=..., or use its lengths "
            f"alone: poisson:rate=8,lengths={path}"
        )
    counts: dict[str, int] = {}
    taken = sorted(islice(_taken(rows, reading, counts), reading.first), key=lambda row: row[0])
    if not taken:
        raise ConfigError(f"{path}: nothing is left of it: {counts or 'no row in the window'}")
    arrivals = _arrivals(taken, form, reading, counts)
    if resample:
        arrivals = resample_gaps(arrivals, seed)
    return Workload(
        name=Path(path).name.partition(".")[0],
        arrivals=classes.lay_over(arrivals, seed),
        source={
            "file": str(path),
            "sha256": digest_of(path),
            "format": form.name,
            **_asked(reading, classes),
            "seed": seed,
            "seed_varies": [*_drawn(classes), *(["gaps"] if resample else [])],
            "gaps": "drawn again from the recorded ones, in blocks" if resample else "as recorded",
        },
        counts=counts,
        tenant_weights=classes.tenant_weights,
    )


def _taken(
    rows: Iterator[Row], reading: Reading, counts: dict[str, int]
) -> Iterator[tuple[float, Row]]:
    """(seconds from the first row, row) of what is wanted, with lengths that fit."""
    origin: float | None = None
    for row in rows:
        assert row.time is not None
        origin = row.time if origin is None else origin
        time = row.time - origin
        if reading.window is not None and not reading.window[0] <= time < reading.window[1]:
            continue
        fitting = _fit(row, reading, counts)
        if fitting is not None:
            yield time, fitting


def _fit(row: Row, reading: Reading, counts: dict[str, int]) -> Row | None:
    if not (row.prompt and row.output):
        counts[EMPTY] = counts.get(EMPTY, 0) + 1
        return None
    most = reading.max_len
    if most is None or row.prompt + row.output <= most:
        return row
    what = DROPPED if reading.too_long == "drop" else CLIPPED
    counts[what] = counts.get(what, 0) + 1
    if reading.too_long == "drop":
        return None
    output = min(row.output, most - 1)
    return attrs.evolve(row, prompt=min(row.prompt, most - output), output=output)


def _arrivals(
    taken: Sequence[tuple[float, Row]], form: Format, reading: Reading, counts: dict[str, int]
) -> list[Arrival]:
    """By time, parents before their children; named by their line."""
    start = reading.window[0] if reading.window is not None else taken[0][0]
    seen: dict[str, tuple[str, float]] = {}
    found = []
    for recorded, row in taken:
        name, time, parent = f"r{row.line}", recorded - start, None
        if row.parent is not None and reading.chats:
            before = seen.get(row.parent)
            if before is None:
                counts[ORPHANS] = counts.get(ORPHANS, 0) + 1
            else:
                parent, time = before[0], recorded - before[1]
        if row.chat is not None:
            seen[row.chat] = name, recorded
        found.append(
            Arrival(
                request_id=name,
                time=time * reading.time_scale if parent is None else time,
                prompt_len=row.prompt,
                output_len=row.output,
                prefix=_pieces(row, form.block),
                tenant=row.tenant,
                priority=row.priority,
                parent=parent,
            )
        )
    return found


def _pieces(row: Row, block: int) -> tuple[tuple[int, int], ...]:
    """The prompt's named blocks; the last one may be partial."""
    whole, rest = divmod(row.prompt, block) if block else (0, 0)
    pieces = [(name, block) for name in row.hash_ids[:whole]]
    if rest and len(row.hash_ids) > whole:
        pieces.append((row.hash_ids[whole], rest))
    return tuple(pieces)


def _asked(reading: Reading, classes: Classes) -> dict[str, Any]:
    """What was asked for beyond the defaults, as plain data."""
    default = Reading()
    asked = {
        name: value
        for name, value in attrs.asdict(reading).items()
        if value != getattr(default, name)
    }
    shares = {
        name: [[str(value), share] for value, share in getattr(classes, name)]
        for name in _drawn(classes)
    }
    return {**asked, **shares}


def _drawn(classes: Classes) -> list[str]:
    return [name for name in ("tenants", "priority", "slo") if getattr(classes, name)]
