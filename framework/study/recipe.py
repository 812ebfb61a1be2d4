"""Recipe: what a SPEC asks for, read and checked. `synthetic` makes the workload of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import frozen

from framework.errors import ConfigError, bad_field, did_you_mean
from framework.study.classes import Classes
from framework.study.draws import Draw, as_draw, whole
from framework.study.formats import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KINDS = ("poisson", "gamma", "constant", "closed")
KIND_OF = {
    "rate": ("poisson", "gamma", "constant"),
    "cv": ("gamma",),
    "users": ("closed",),
}
"""Options that mean something to some kinds only."""
CLASSES = ("tenants", "weights", "priority", "slo")


DEFAULTS = {
    "kind": "poisson",
    "n": 1000,
    "rate": 1,
    "cv": 1,
    "users": 16,
    "turns": 1,
    "think": 0,
    "prompt": "lognormal(1000,0.7)",
    "output": "lognormal(200,0.8)",
    "lengths": (),
    "prefixes": 0,
    "prefix": 512,
    "max_len": 8192,
}


@frozen(kw_only=True)
class Recipe:
    """How a workload is made. Lengths in tokens, times in seconds; see `draws` for distributions.

    Attributes:
        kind: 'poisson', 'gamma', 'constant' (open loop), or 'closed' (users who wait for answers).
        n: requests in all.
        rate: of an open loop: chats a second, and a chat is one request unless `turns` says more.
        cv: of 'gamma': standard deviation of the gaps over their mean; 1 is Poisson.
        users: of 'closed': each sends its next request when the one before has ended.
        turns: requests of a chat; each begins with the prompt and the output of the one before.
        think: seconds from the end of a request to the next one of the chat or user.
        prompt, output: lengths; of a later request of a chat, of what is new in its prompt.
        lengths: a trace whose (prompt, output) lengths are drawn in pairs, instead of those two;
            or the pairs themselves.
        prefixes: groups of chats; those of a group begin alike. 0 = none.
        prefix: length of a group's beginning; the prompt comes after it.
        max_len: most tokens of prompt and output; what is longer is clipped, and counted. A chat
            begins anew where it would not fit.
    """

    kind: str
    n: int
    rate: float
    cv: float
    users: int
    turns: Draw
    think: Draw
    prompt: Draw
    output: Draw
    lengths: Sequence[tuple[int, int]]
    prefixes: int
    prefix: Draw
    max_len: int


def is_spec(text: str) -> bool:
    """Whether a text means a workload made by rule, and not a file."""
    return text.partition(":")[0].strip() in KINDS


def read_spec(text: str, options: Mapping[str, Any]) -> tuple[Recipe, Classes]:
    """'kind:name=value,...' and more names, as records.

    Raises:
        ConfigError: a name is unknown, or a value is not allowed.
    """
    kind, _, rest = text.partition(":")
    fields: dict[str, Any] = {**DEFAULTS, "kind": kind.strip()}
    given: dict[str, str] = {}
    for piece in _split(rest):
        name, equals, value = piece.partition("=")
        if not equals:
            raise bad_field("workload", piece, "name=value")
        if name.strip() in given:
            allowed = "each option once; parts are joined by ' + ', with the spaces"
            raise bad_field("workload", text, allowed)
        given[name.strip()] = value.strip()
    fields |= given
    fields |= options
    for name in fields:
        if name not in (*DEFAULTS, *CLASSES):
            close = did_you_mean(name, (*DEFAULTS, *CLASSES))
            raise ConfigError(f"workload: it has no option {name!r}.{close}")
    for name in given:
        if name in KIND_OF and fields["kind"] not in KIND_OF[name]:
            raise bad_field("workload", text, f"{name} with {' or '.join(KIND_OF[name])}")
    classes = Classes(**{name: fields.pop(name) for name in CLASSES if name in fields})
    return Recipe(
        **{name: CONVERTERS[name](name, value) for name, value in fields.items()}
    ), classes


def _kind(name: str, given: Any) -> str:
    if given not in KINDS:
        close = did_you_mean(str(given), KINDS)
        raise ConfigError(f"workload: got {given!r}, allowed: {', '.join(KINDS)}.{close}")
    return str(given)


def _whole_number(low: int) -> Callable[[str, Any], int]:
    def convert(name: str, given: Any) -> int:
        text = str(given)
        if not text.isdecimal() or int(text) < low:
            raise bad_field(name, given, f"a whole number of at least {low}")
        return int(text)

    return convert


def _above_zero(name: str, given: Any) -> float:
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 < value < float("inf"):
        raise bad_field(name, given, "a number above 0")
    return value


def _pairs(name: str, given: Any) -> Sequence[tuple[int, int]]:
    if not isinstance(given, str):
        return [(whole(prompt), whole(output)) for prompt, output in given]
    _, rows = read_rows(given)
    pairs = [(row.prompt, row.output) for row in rows if row.prompt and row.output]
    if not pairs:
        raise bad_field(name, given, "a trace with at least one row")
    return pairs


CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    "kind": _kind,
    "n": _whole_number(1),
    "rate": _above_zero,
    "cv": _above_zero,
    "users": _whole_number(1),
    "turns": as_draw,
    "think": as_draw,
    "prompt": as_draw,
    "output": as_draw,
    "lengths": _pairs,
    "prefixes": _whole_number(0),
    "prefix": as_draw,
    "max_len": _whole_number(2),
}


def _split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece for piece in pieces if piece.strip()]
