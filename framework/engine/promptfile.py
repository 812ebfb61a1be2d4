"""Files of prompts: one JSON object a line."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from framework.engine.prompts import Prompt
from framework.errors import HeadwayError, RequestError, did_you_mean
from framework.sampling import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Mapping

DEMO: Final = "demo"
SAMPLING_KEYS: Final = tuple(attribute.name for attribute in attrs.fields(SamplingParams))
PROMPT_KEYS: Final = ("prompt", "messages", "prompt_token_ids", "priority", "tenant", "arrival_s")
KEYS: Final = (*PROMPT_KEYS, "id", *SAMPLING_KEYS)


def read_prompts(path: str | Path, defaults: Mapping[str, Any] | None = None) -> list[Prompt]:
    """Read a JSONL file of prompts; `demo` is the file that comes with Headway.

    Args:
        path: one JSON object a line with `prompt`, `messages` or `prompt_token_ids`, and
            optional `id`, `priority`, `tenant`, `arrival_s` and fields of SamplingParams.
            Blank lines are passed over.
        defaults: sampling fields for lines that do not have their own.

    Raises:
        RequestError: the file cannot be read or holds no prompt, or a line is wrong; the
            message names file and line.
    """
    name, text = _read(path)
    prompts: list[Prompt] = []
    lines: dict[str | None, int] = {}
    # Not splitlines(): text may hold U+2028 and its like, which JSON allows inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name} line {number}"
        try:
            prompt = _parse(line, defaults or {}, number, where)
            first = lines.setdefault(prompt.request_id, number)
            if first != number:
                raise RequestError(f"id: {prompt.request_id!r} is taken by line {first}")
        except HeadwayError as error:
            raise RequestError(f"{where}: {error}") from error
        prompts.append(prompt)
    if not prompts:
        raise RequestError(f"{name}: holds no prompt; allowed: one JSON object a line")
    return prompts


def _read(path: str | Path) -> tuple[str, str]:
    if str(path) == DEMO:
        resource = files("framework") / "data" / "demo_prompts.jsonl"
        return resource.name, resource.read_text(encoding="utf-8")
    try:
        return str(path), Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: cannot be read: it is not UTF-8 text") from error


def _parse(line: str, defaults: Mapping[str, Any], number: int, where: str) -> Prompt:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise RequestError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise RequestError(f"got a JSON {type(fields).__name__}, allowed: an object")
    for key in fields:
        if key not in KEYS:
            raise RequestError(f"{key}: no such key.{did_you_mean(key, KEYS)}")
    sampling = {key: fields[key] for key in SAMPLING_KEYS if key in fields}
    return Prompt(
        **{key: fields[key] for key in PROMPT_KEYS if key in fields},
        request_id=fields.get("id", f"line-{number}"),
        sampling_params=make_sampling_params({**defaults, **sampling}),
        where=where,
    )


def make_sampling_params(fields: Mapping[str, Any]) -> SamplingParams:
    """SamplingParams from fields of unknown types.

    Raises:
        ConfigError: a value is not allowed.
        RequestError: a value has the wrong type altogether.
    """
    try:
        return SamplingParams(**fields)
    except TypeError as error:
        raise RequestError(f"sampling fields: {error}") from error
