"""Values of a row of a trace, each checked: ValueError names the column that is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_time(record: Mapping[str, Any], column: str) -> float:
    """A number as it stands, or a date and time in seconds since 1970; without zone it is UTC."""
    value = record[column]
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = _date(column, value)
    if not abs(seconds) < 1e12 or isinstance(value, bool):
        raise ValueError(f"{column}: got {value!r}, allowed: a number, or a date and time")
    return seconds


def _date(column: str, value: Any) -> float:
    try:
        moment = datetime.fromisoformat(value.strip())
    except (AttributeError, ValueError):
        allowed = "a number, or a date and time"
        raise ValueError(f"{column}: got {value!r}, allowed: {allowed}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def read_tokens(record: Mapping[str, Any], column: str) -> int:
    """A number of tokens, perhaps 0."""
    value = record[column]
    try:
        count = float(value)
    except (TypeError, ValueError):
        count = -1.0
    if not 0 <= count < 1e9 or count != int(count) or isinstance(value, bool):
        raise ValueError(f"{column}: got {value!r}, allowed: a number of tokens")
    return int(count)


def read_priority(record: Mapping[str, Any], column: str) -> int:
    """A whole number."""
    try:
        return int(record[column])
    except (TypeError, ValueError):
        raise ValueError(
            f"{column}: got {record[column]!r}, allowed: a whole number, lower is more urgent"
        ) from None


def read_hash_ids(record: Mapping[str, Any]) -> tuple[int, ...]:
    """Names of a prompt's blocks."""
    value = record["hash_ids"]
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        raise ValueError(f"hash_ids: got {str(value)[:40]!r}, allowed: a list of whole numbers")
    return tuple(value)
