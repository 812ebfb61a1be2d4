"""A workload made into another one: stretched, with other gaps, or repeated."""

from __future__ import annotations

from itertools import accumulate, pairwise
from random import Random
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.study.workload import Arrival, Workload


def scale_time(workload: Workload, factor: float) -> Workload:
    """The same with arrivals so many times as far apart; think times stay."""
    arrivals = [
        each if each.parent is not None else attrs.evolve(each, time=each.time * factor)
        for each in workload.arrivals
    ]
    source = {**workload.source, "times_scaled_by": factor}
    return attrs.evolve(workload, arrivals=arrivals, source=source)


def resample_gaps(arrivals: Sequence[Arrival], seed: int) -> list[Arrival]:
    """The same arrivals with gaps drawn from their own, in blocks of consecutive ones."""
    times = [each.time for each in arrivals if each.parent is None]
    gaps = [after - before for before, after in pairwise(times)]
    random, size = Random(f"{seed}/gaps"), block_size(len(gaps))
    drawn: list[float] = []
    while len(drawn) < len(gaps):
        start = random.randrange(len(gaps))
        drawn += (gaps + gaps[:size])[start : start + size]
    left = accumulate(drawn, initial=times[0])
    return [
        each if each.parent is not None else attrs.evolve(each, time=next(left))
        for each in arrivals
    ]


def block_size(num_gaps: int) -> int:
    """Of a bootstrap: the cube root of the sample, rounded up."""
    return next(size for size in range(1, num_gaps + 2) if size**3 >= num_gaps)


def repeat(workload: Workload, count: int) -> Workload:
    """So many requests: the workload over and over, each time under other ids.

    The times of each repetition are those of the first.
    """
    size = len(workload.arrivals)
    arrivals = [_renamed(workload.arrivals[place % size], place // size) for place in range(count)]
    source = {**workload.source, "repeated_to": count}
    return attrs.evolve(workload, arrivals=arrivals, source=source)


def _renamed(arrival: Arrival, repetition: int) -> Arrival:
    if not repetition:
        return arrival
    parent = None if arrival.parent is None else f"{arrival.parent}.{repetition}"
    return attrs.evolve(arrival, request_id=f"{arrival.request_id}.{repetition}", parent=parent)
