"""Rows of public traces: which format a file has, and what each of its rows says.

azure     TIMESTAMP,ContextTokens,GeneratedTokens           Azure LLM inference 2023, 2024; CSV
burstgpt  Timestamp,...,Request tokens,Response tokens,...  BurstGPT; CSV, seconds
mooncake  timestamp, input_length, output_length, hash_ids  Mooncake; JSONL, ms, 512-token blocks
bailian   chat_id, parent_chat_id, timestamp, ..., hash_ids Qwen-Bailian; JSONL, s, 16-token blocks
plain     any other CSV or JSONL; columns by common names, or as the user names them
"""

from __future__ import annotations

import csv
import json
from typing import IO, TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from framework.errors import ConfigError, did_you_mean
from framework.study.files import open_text
from framework.study.values import read_hash_ids, read_priority, read_time, read_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FIELDS = ("time", "prompt", "output", "tenant", "priority")
COMMON_NAMES = {
    "time": ("time", "arrival_s", "arrival", "arrival_time", "timestamp", "time_s"),
    "prompt": (
        *("prompt", "prompt_len", "prompt_tokens", "input_tokens", "input_length"),
        *("num_prefill_tokens", "context_tokens"),
    ),
    "output": (
        *("output", "output_len", "output_tokens", "output_length", "num_decode_tokens"),
        *("completion_tokens", "generated_tokens"),
    ),
    "tenant": ("tenant", "user"),
    "priority": ("priority",),
}


@frozen(kw_only=True)
class Row:
    """One request of a trace; `line` of its file.

    Attributes:
        time: seconds, from whenever the trace counts; None if the trace has none.
        prompt, output: tokens, perhaps 0.
        hash_ids: names of the prompt's blocks.
        chat, parent: its name, and that of the request before it in a chat, or None.
    """

    line: int
    time: float | None
    prompt: int
    output: int
    hash_ids: tuple[int, ...] = ()
    chat: str | None = None
    parent: str | None = None
    tenant: str | None = None
    priority: int = 0


@frozen(kw_only=True)
class Format:
    """Where a trace keeps what.

    Attributes:
        columns: {field: column} of `FIELDS`.
        marks: columns by which it is recognised.
        unit_s: seconds of one unit of time.
        block: tokens of a named block of the prompt; 0 = none are named.
    """

    name: str
    columns: Mapping[str, str] = field(factory=dict)
    marks: tuple[str, ...] = ()
    unit_s: float = 1.0
    block: int = 0


_LENGTHS = {"time": "timestamp", "prompt": "input_length", "output": "output_length"}
FORMATS = (
    Format(name="bailian", columns=_LENGTHS, marks=("parent_chat_id", "hash_ids"), block=16),
    Format(name="mooncake", columns=_LENGTHS, marks=("hash_ids",), unit_s=0.001, block=512),
    Format(
        name="azure",
        columns={"time": "TIMESTAMP", "prompt": "ContextTokens", "output": "GeneratedTokens"},
        marks=("ContextTokens", "GeneratedTokens"),
    ),
    Format(
        name="burstgpt",
        columns={"time": "Timestamp", "prompt": "Request tokens", "output": "Response tokens"},
        marks=("Request tokens", "Response tokens"),
    ),
    Format(name="plain"),
)


def read_rows(
    path: str | Path, name: str | None = None, columns: Mapping[str, str] | None = None
) -> tuple[Format, Iterator[Row]]:
    """The format of a file, and its rows in order.

    Args:
        path: a CSV or JSONL file, plain or .gz.
        name: of its format; None = recognised by its columns.
        columns: {field: column}, instead of those the format has.

    Raises:
        ConfigError: the file cannot be read, or its columns are not known; while the rows are
            read, that one is wrong, with file and line.
    """
    first = next(_records(path), None)
    if first is None:
        raise ConfigError(f"{path}: it has no rows")
    found = _complete(path, _recognise(name, first[1]), first[1], columns or {})
    return found, (_row(path, line, record, found) for line, record in _records(path))


def parse_columns(text: str) -> dict[str, str]:
    """'time=ts,prompt=in,output=out' -> {field: column}.

    Raises:
        ConfigError: it is not that.
    """
    columns = {}
    for piece in text.split(","):
        name, equals, column = piece.partition("=")
        if name.strip() not in FIELDS or not equals or not column.strip():
            allowed = "field=column,... with the fields " + ", ".join(FIELDS)
            raise ConfigError(f"columns: got {text!r}, allowed: {allowed}")
        columns[name.strip()] = column.strip()
    return columns


def _recognise(name: str | None, record: Mapping[str, Any]) -> Format:
    names = [each.name for each in FORMATS]
    if name is not None and name not in names:
        allowed = f"{', '.join(names)}.{did_you_mean(name, names)}"
        raise ConfigError(f"format: got {name!r}, allowed: {allowed}")
    return next(
        each
        for each in FORMATS
        if (each.name == name if name else all(mark in record for mark in each.marks))
    )


def _complete(
    path: str | Path, form: Format, record: Mapping[str, Any], columns: Mapping[str, str]
) -> Format:
    """The format with the columns that were named, and all of them looked up in a row."""
    known = {**form.columns, **columns}
    for name, candidates in COMMON_NAMES.items():
        if name not in known and (form.name == "plain" or name in ("tenant", "priority")):
            column = next((each for each in candidates if each in record), None)
            if column is not None:
                known[name] = column
    missing = [name for name in ("prompt", "output") if name not in known]
    missing += [name for name in known if known[name] not in record]
    if missing:
        raise ConfigError(
            f"{path}: no column for {' and '.join(missing)}; it has {', '.join(record)}; "
            f"say which with columns {','.join(f'{name}=...' for name in missing)}"
        )
    return evolve(form, columns=known)


def _records(path: str | Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line, {column: value}) of each row."""
    with open_text(path) as file:
        start = file.read(1)
        file.seek(0)
        if start == "{":
            yield from _json_records(path, file)
            return
        rows = csv.DictReader(file)
        try:
            for record in rows:
                yield rows.line_num, record
        except csv.Error as error:
            raise ConfigError(f"{path}:{rows.line_num}: {error}") from error


def _json_records(path: str | Path, file: IO[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, text in enumerate(file, 1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{path}:{line}: this is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise ConfigError(
                f"{path}:{line}: got {type(record).__name__}, allowed: a JSON object in each line"
            )
        yield line, record


def _row(path: str | Path, line: int, record: Mapping[str, Any], form: Format) -> Row:
    columns = form.columns
    try:
        time = read_time(record, columns["time"]) * form.unit_s if "time" in columns else None
        parent = str(record["parent_chat_id"]) if form.name == "bailian" else "-1"
        tenant = record[columns["tenant"]] if "tenant" in columns else None
        return Row(
            line=line,
            time=time,
            prompt=read_tokens(record, columns["prompt"]),
            output=read_tokens(record, columns["output"]),
            hash_ids=read_hash_ids(record) if form.block else (),
            chat=str(record["chat_id"]) if form.name == "bailian" else None,
            parent=None if parent == "-1" else parent,
            tenant=None if tenant in (None, "") else str(tenant),
            priority=read_priority(record, columns["priority"]) if "priority" in columns else 0,
        )
    except KeyError as error:
        raise ConfigError(f"{path}:{line}: {error} is missing") from error
    except ValueError as error:
        raise ConfigError(f"{path}:{line}: {error}") from error
