"""Random numbers by rule: lengths, think times, and weighted choices, from text or from Python.

    256   lognormal(1500,0.7)   exponential(5)   geometric(4)   uniform(10,20)   [12,40,7]
    file(lengths.csv,column)    lognormal(200,0.5)*3|4000       (three quarters the first)

A log-normal, exponential or geometric draw is named by its mean. `a*2|b` is a weighted choice.
"""

from __future__ import annotations

import csv
import math
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TypeAlias

from attrs import frozen

from framework.errors import bad_field
from framework.study.files import open_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

ALLOWED = (
    "a number, lognormal(mean,sigma), exponential(mean), geometric(mean), uniform(low,high), "
    "[numbers], file(path,column), or a choice of them such as a*2|b"
)


class Draw(Protocol):
    """A distribution; `str` of it is the text it is read from."""

    def sample(self, random: Random) -> float:
        """One number."""


DrawLike: TypeAlias = "Draw | str | float | Sequence[float]"
"""What is accepted where a distribution is wanted; a sequence is drawn from with replacement."""


@frozen
class Fixed:
    """Always the same."""

    value: float

    def sample(self, random: Random) -> float:
        """The value."""
        return self.value

    def __str__(self) -> str:
        return f"{self.value:g}"


@frozen
class Lognormal:
    """By its mean, and the standard deviation of its logarithm."""

    mean: float
    sigma: float

    def sample(self, random: Random) -> float:
        """One number."""
        return random.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)

    def __str__(self) -> str:
        return f"lognormal({self.mean:g},{self.sigma:g})"


@frozen
class Exponential:
    """By its mean."""

    mean: float

    def sample(self, random: Random) -> float:
        """One number."""
        return random.expovariate(1 / self.mean)

    def __str__(self) -> str:
        return f"exponential({self.mean:g})"


@frozen
class Geometric:
    """1, 2, 3, ... by its mean of at least 1."""

    mean: float

    def sample(self, random: Random) -> float:
        """One number."""
        if self.mean <= 1:
            return 1.0
        return 1.0 + int(math.log(1.0 - random.random()) / math.log(1 - 1 / self.mean))

    def __str__(self) -> str:
        return f"geometric({self.mean:g})"


@frozen
class Uniform:
    """Between two numbers."""

    low: float
    high: float

    def sample(self, random: Random) -> float:
        """One number."""
        return random.uniform(self.low, self.high)

    def __str__(self) -> str:
        return f"uniform({self.low:g},{self.high:g})"


@frozen
class Empirical:
    """One of the values, each as likely as the others."""

    values: Sequence[float]
    text: str

    def sample(self, random: Random) -> float:
        """One value."""
        return random.choice(self.values)

    def __str__(self) -> str:
        return self.text


@frozen
class Mixture:
    """One of several distributions, by weight."""

    parts: Sequence[tuple[Draw, float]]

    def sample(self, random: Random) -> float:
        """One number of one of them."""
        bounds = list(accumulate(weight for _, weight in self.parts))
        place = random.random() * bounds[-1]
        number = next(index for index, bound in enumerate(bounds) if place < bound)
        return self.parts[number][0].sample(random)

    def __str__(self) -> str:
        return "|".join(f"{part}*{weight:g}" for part, weight in self.parts)


FORMS: dict[str, tuple[type[Lognormal | Exponential | Geometric | Uniform], int]] = {
    "lognormal": (Lognormal, 2),
    "exponential": (Exponential, 1),
    "geometric": (Geometric, 1),
    "uniform": (Uniform, 2),
}


def as_draw(name: str, given: DrawLike) -> Draw:
    """A distribution from whatever was given.

    Raises:
        ConfigError: it is none of what is allowed; it names the field.
    """
    if isinstance(given, str):
        options = weighted(name, given)
        parts = [(_from_text(name, text), weight) for text, weight in options]
        return parts[0][0] if len(parts) == 1 else Mixture(parts)
    if isinstance(given, int | float) and not isinstance(given, bool):
        return Fixed(_number(name, given))
    if hasattr(given, "sample"):
        return given
    if not isinstance(given, list | tuple) or not given:
        raise bad_field(name, given, ALLOWED)
    values = [_number(name, value) for value in given]
    return Empirical(values, f"[{','.join(f'{value:g}' for value in values)}]")


def weighted(name: str, text: str) -> list[tuple[str, float]]:
    """'a*2|b' -> [('a', 2.0), ('b', 1.0)].

    Raises:
        ConfigError: a part is empty or a weight is not a number above 0.
    """
    found = []
    for part in text.split("|"):
        option, star, weight = part.partition("*")
        try:
            value = float(weight) if star else 1.0
        except ValueError:
            value = -1.0
        if not option.strip() or not 0 < value < math.inf:
            raise bad_field(name, text, "options such as a*2|b, with weights above 0")
        found.append((option.strip(), value))
    return found


def whole(value: float) -> int:
    """A number of tokens: at least 1."""
    return max(1, round(value))


def _from_text(name: str, text: str) -> Draw:
    form, parenthesis, rest = text.partition("(")
    inside = rest.removesuffix(")")
    if text.startswith("[") and text.endswith("]"):
        values = [_number(name, value) for value in text[1:-1].split(",")]
        return Empirical(values, text)
    if not parenthesis:
        return Fixed(_number(name, text))
    if form == "file" and rest.endswith(")"):
        path, _, column = inside.rpartition(",")
        return Empirical(_column(name, path.strip(), column.strip()), text)
    known = FORMS.get(form)
    numbers = [_number(name, value) for value in inside.split(",")]
    if known is None or not rest.endswith(")") or len(numbers) != known[1]:
        raise bad_field(name, text, ALLOWED)
    if form != "uniform" and numbers[0] <= 0:
        raise bad_field(name, text, "a mean above 0")
    return known[0](*numbers)


def _number(name: str, value: object) -> float:
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        found = -1.0
    if not 0 <= found < math.inf:
        raise bad_field(name, value, ALLOWED)
    return found


def _column(name: str, path: str, column: str) -> list[float]:
    """A column of a CSV file, plain or .gz."""
    with open_text(path) as file:
        rows = csv.DictReader(file)
        if column not in (rows.fieldnames or ()):
            raise bad_field(name, column, f"a column of {path}: {', '.join(rows.fieldnames or ())}")
        found = [_number(f"{name}, {path}:{rows.line_num}", row[column]) for row in rows]
    if not found:
        raise bad_field(name, path, "a file with at least one row")
    return found
