"""Fit a latency model to measured steps, by least squares of relative errors.

No coefficient may be negative, so the model is monotone by construction; a curve is a sum of
segments whose slopes are coefficients like the others.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen

from framework.errors import ConfigError, bad_field
from framework.latency import LinearLatency, TableLatency
from framework.protocols import Batch
from framework.study.least_squares import relative_least_squares

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FEWEST_ROWS = 10
ROWS_PER_SEGMENT = 8
COLUMNS = (*(one.name for one in attrs.fields(Batch)), "seconds")


@frozen
class Row:
    """One measured step: its sums, and how long it took."""

    batch: Batch
    seconds: float


@frozen(kw_only=True)
class Fit:
    """A fitted model and how well it describes the rows that it was fitted to.

    Attributes:
        latency: the model.
        num_rows: measured steps.
        mape: mean of the absolute relative errors.
        bias: predicted by measured time, over all rows together.
        worst: the row that is furthest off, relatively; worst_s: what the model says of it.
    """

    latency: LinearLatency
    num_rows: int
    mape: float
    bias: float
    worst: Row
    worst_s: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return attrs.asdict(self)


def fit_latency(rows: Sequence[Row], *, has_curve: bool = False, **about: Any) -> Fit:
    """The latency model that describes measured steps best.

    Args:
        rows: measured steps, of many sizes.
        has_curve: fit a curve over the tokens of a step instead of a straight line.
        about: name, source, kv_bytes_per_token, num_kv_tokens of the model.

    Raises:
        ConfigError: there are too few rows, or their times are no times.
    """
    if len(rows) < FEWEST_ROWS:
        raise bad_field("rows", len(rows), f"at least {FEWEST_ROWS} measured steps")
    for row in rows:
        if not (row.batch.num_tokens > 0 and 0 < row.seconds < float("inf")):
            raise bad_field("rows", row, "steps with tokens that took some time")
    knots = _knots(rows) if has_curve else [0]
    columns = [_columns(row.batch, knots) for row in rows]
    found = relative_least_squares(columns, [1000 * row.seconds for row in rows])
    return judge(_model(found, knots, about), rows)


def judge(latency: LinearLatency, rows: Sequence[Row]) -> Fit:
    """How well a model describes rows, its own or others."""
    predicted = [latency.predict(row.batch) for row in rows]
    errors = [abs(time / row.seconds - 1) for time, row in zip(predicted, rows, strict=True)]
    place = max(range(len(rows)), key=errors.__getitem__)
    return Fit(
        latency=latency,
        num_rows=len(rows),
        mape=sum(errors) / len(errors),
        bias=sum(predicted) / sum(row.seconds for row in rows),
        worst=rows[place],
        worst_s=predicted[place],
    )


def _columns(batch: Batch, knots: Sequence[int]) -> list[float]:
    """What each coefficient is multiplied by; a segment of the curve counts tokens within it."""
    count = batch.num_tokens
    segments = [float(max(0, min(count, more) - low)) for low, more in pairwise(knots)]
    return [
        1.0,
        float(batch.num_prefill_tokens),
        batch.prefill_query_context,
        float(batch.decode_context),
        float(batch.num_decodes > 0),
        float(batch.num_requests),
        *segments,
        float(max(0, count - knots[-1])),
    ]


def _model(found: Sequence[float], knots: Sequence[int], about: dict[str, Any]) -> LinearLatency:
    base, prefill, pair, context, decode, request, *slopes = found
    terms: dict[str, Any] = {
        "prefill_token_ms": prefill,
        "pair_ms": pair,
        "context_ms": context,
        "decode_ms": decode,
        "request_ms": request,
    }
    if len(knots) == 1:
        return LinearLatency(base_ms=base, token_ms=slopes[0], **terms, **about)
    height, curve = base, [(knots[0], base)]
    for (low, more), slope in zip(pairwise([*knots, 2 * knots[-1]]), slopes, strict=True):
        height += slope * (more - low)
        curve.append((more, height))
    return TableLatency(curve=curve, **terms, **about)


def _knots(rows: Sequence[Row]) -> list[int]:
    """Powers of two, with enough rows from each to the next."""
    counts = sorted(row.batch.num_tokens for row in rows)
    knots, num_before = [1], bisect_left(counts, 2)
    knot = 2
    while knot < counts[-1]:
        upto = bisect_left(counts, knot + 1)
        if min(upto - num_before, len(counts) - upto) >= ROWS_PER_SEGMENT:
            knots.append(knot)
            num_before = upto
        knot *= 2
    return knots if len(knots) > 1 else [1, max(2, counts[-1] // 2)]


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Keep measured steps as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows((*attrs.astuple(row.batch), row.seconds) for row in rows)


def read_rows(path: Path) -> list[Row]:
    """Measured steps from a CSV with the columns of a `Batch` and `seconds`; others are ignored.

    Raises:
        ConfigError: the file or a line of it is not that.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise ConfigError(f"{path}: no column {', '.join(missing)}")
            return [_row(fields, f"{path}:{reader.line_num}") for fields in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _row(fields: dict[str, str], where: str) -> Row:
    try:
        values = [float(fields[name]) for name in COLUMNS]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: got {fields}, allowed: numbers") from error
    if not all(0 <= value < float("inf") for value in values):
        raise ConfigError(f"{where}: got {fields}, allowed: numbers of at least 0")
    tokens, prefill, pairs, context, decodes, requests, seconds = values
    batch = Batch(int(tokens), int(prefill), pairs, int(context), int(decodes), int(requests))
    return Row(batch, seconds)
