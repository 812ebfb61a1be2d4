"""Curves of a run, thinned out to what a figure can show."""

from __future__ import annotations

import math
from itertools import accumulate
from math import isnan
from operator import add
from typing import TYPE_CHECKING, Any

from framework.study.fairness import OUTPUT_COST, PROMPT_COST
from framework.study.series import RATIO, SMALLEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.study.meter import Meter
    from framework.study.series import Gaps

MOST_TIMES = 300
MOST_SHARES = 200
SERVICE_TIMES = 100


def curves_of(meter: Meter) -> dict[str, Any]:
    """What `result` calls curves, as plain data."""
    points = thinned(meter.series.points, MOST_TIMES)
    time, used, running, waiting, tokens = (
        zip(*points, strict=True) if points else ((), (), (), (), ())
    )
    return {
        "time_s": list(time),
        "kv_used_blocks": list(used),
        "kv_total_blocks": meter.series.num_blocks,
        "running": list(running),
        "waiting": list(waiting),
        "step_tokens": list(tokens),
        "cdf": {
            "ttft_s": quantiles(meter.columns["ttft"]),
            "e2e_s": quantiles(meter.columns["e2e"]),
            "itl_s": gap_quantiles(meter.gaps),
            "end_s": quantiles(list(map(add, meter.columns["arrival"], meter.columns["e2e"]))),
        },
        "service": service_over_time(meter),
    }


def thinned(points: Sequence[Any], most: int) -> list[Any]:
    """At most so many of them, evenly, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]


def quantiles(values: Sequence[float]) -> list[tuple[float, float]]:
    """(value, share of all values up to it), at most `MOST_SHARES`; NaN is left out."""
    known = sorted(value for value in values if not isnan(value))
    pairs = [(value, (place + 1) / len(known)) for place, value in enumerate(known)]
    return thinned(pairs, MOST_SHARES)


def gap_quantiles(gaps: Gaps) -> list[tuple[float, float]]:
    """The same of a histogram; a value is the middle of its bin."""
    numbers = sorted(gaps.bins)
    sums = accumulate(gaps.bins[number] for number in numbers)
    pairs = [
        (min(SMALLEST * math.exp((number + 0.5) * RATIO), gaps.longest), total / gaps.count)
        for number, total in zip(numbers, sums, strict=True)
    ]
    return thinned(pairs, MOST_SHARES)


def service_over_time(meter: Meter) -> dict[str, Any]:
    """Weighted service of each tenant up to each time, as `fairness` counts it.

    A prompt counts at its admission; outputs are spread evenly from the first to the last.
    """
    tenants = sorted(meter.service.tenants)
    if not tenants or not meter.end:
        return {}
    bins = {tenant: [0.0] * SERVICE_TIMES for tenant in tenants}
    size = meter.end / SERVICE_TIMES
    columns = meter.columns
    lives = zip(
        *(columns[name] for name in ("arrival", "queueing", "ttft", "e2e")),
        *(columns[name] for name in ("prompt_len", "output_len")),
        meter.ended,
        strict=True,
    )
    for arrival, queueing, ttft, e2e, prompt, output, ended in lives:
        tenant = ended.arrival.tenant
        if tenant is None or isnan(queueing):
            continue
        weight, found = meter.service.tenants[tenant].weight, bins[tenant]
        _add(found, (arrival + queueing) / size, 0.0, PROMPT_COST * prompt / weight)
        if not (isnan(ttft) or isnan(e2e)):
            span = (e2e - ttft) / size
            _add(found, (arrival + ttft) / size, span, OUTPUT_COST * output / weight)
    times = [size * (place + 1) for place in range(SERVICE_TIMES)]
    return {"time_s": times, "by_tenant": {name: list(accumulate(bins[name])) for name in tenants}}


def _add(bins: list[float], start: float, span: float, amount: float) -> None:
    """Spread an amount over a span of bins, which need not be whole."""
    last = len(bins) - 1
    first, end = min(int(start), last), min(int(start + span), last)
    if first == end:
        bins[first] += amount
        return
    bins[first] += amount * (first + 1 - start) / span
    for place in range(first + 1, end):
        bins[place] += amount / span
    bins[end] += amount * (start + span - end) / span
