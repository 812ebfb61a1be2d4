"""Least squares whose coefficients may not be negative.

The active-set method of Lawson and Hanson ("Solving Least Squares Problems", 1974), for so few
columns that plain Python is quick enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NUM_ROUNDS = 4
FAR_OFF = 0.5
"""A step further off than this half counts less than its square: something else ran meanwhile."""
RIDGE = 1e-9


def relative_least_squares(
    columns: Sequence[Sequence[float]], times: Sequence[float]
) -> list[float]:
    """Coefficients of at least 0 that bring the sum of columns near the times, relatively.

    Errors are divided by the measured time at first, then by the predicted one: dividing by what
    was measured favours those steps that happened to be fast.
    """
    width = len(columns[0])
    sizes = [max(row[place] for row in columns) or 1.0 for place in range(width)]
    scaled = [[value / size for value, size in zip(row, sizes, strict=True)] for row in columns]
    scales = list(times)
    found = [0.0] * width
    for _ in range(NUM_ROUNDS):
        weights = [1 / scale for scale in scales]
        if any(found):
            errors = [abs(time - scale) / scale for time, scale in zip(times, scales, strict=True)]
            weights = [
                weight * min(1.0, FAR_OFF / max(error, FAR_OFF)) ** 0.5
                for weight, error in zip(weights, errors, strict=True)
            ]
        gram, target = _normal_equations(scaled, times, weights)
        found = nonnegative_solution(gram, target)
        least = min(times) / 10
        scales = [
            max(least, sum(one * x for one, x in zip(row, found, strict=True))) for row in scaled
        ]
    return [x / size for x, size in zip(found, sizes, strict=True)]


def _normal_equations(
    columns: Sequence[Sequence[float]], times: Sequence[float], weights: Sequence[float]
) -> tuple[list[list[float]], list[float]]:
    width = len(columns[0])
    gram = [[0.0] * width for _ in range(width)]
    target = [0.0] * width
    for row, time, weight in zip(columns, times, weights, strict=True):
        square = weight * weight
        for place, value in enumerate(row):
            if value:
                share = value * square
                target[place] += share * time
                line = gram[place]
                for other in range(width):
                    line[other] += share * row[other]
    return gram, target


def nonnegative_solution(gram: Sequence[Sequence[float]], target: Sequence[float]) -> list[float]:
    """The x >= 0 that minimises x.gram.x / 2 - target.x, gram symmetric and positive."""
    width = len(target)
    found = [0.0] * width
    used: list[int] = []
    for _ in range(10 * width):
        slopes = {
            place: (target[place] - sum(map(float.__mul__, gram[place], found)))
            / (gram[place][place] or 1.0) ** 0.5
            for place in range(width)
            if place not in used
        }
        best = max(slopes, key=slopes.__getitem__, default=None)
        if best is None or slopes[best] <= 1e-9 * max(map(abs, target)):
            break
        used.append(best)
        while used:
            wanted = _solve(gram, target, used)
            if min(wanted) > 0:
                break
            step = min(
                found[place] / (found[place] - value) if value else 0.0
                for place, value in zip(used, wanted, strict=True)
                if value <= 0
            )
            for place, value in zip(used, wanted, strict=True):
                found[place] += step * (value - found[place])
            used = [
                place
                for place, value in zip(used, wanted, strict=True)
                if value > 0 or found[place] > 1e-12
            ]
        found = [0.0] * width
        for place, value in zip(used, wanted, strict=False):
            found[place] = value
    return found


def _solve(
    gram: Sequence[Sequence[float]], target: Sequence[float], places: Sequence[int]
) -> list[float]:
    """The solution for some columns alone, by elimination; a ridge keeps twins apart."""
    lines = [
        [gram[one][other] * (1 + RIDGE * (one == other)) for other in places] + [target[one]]
        for one in places
    ]
    size = len(lines)
    for column in range(size):
        for below in range(column + 1, size):
            factor = lines[below][column] / lines[column][column]
            for place in range(column, size + 1):
                lines[below][place] -= factor * lines[column][place]
    found = [0.0] * size
    for column in reversed(range(size)):
        rest = sum(lines[column][place] * found[place] for place in range(column + 1, size))
        found[column] = (lines[column][size] - rest) / lines[column][column]
    return found
