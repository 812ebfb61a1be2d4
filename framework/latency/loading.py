"""Latency models by name, by file, or for a model and a GPU."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.errors import ConfigError, did_you_mean
from framework.latency.datasheet import from_model
from framework.latency.linear import LinearLatency
from framework.latency.table import CURVE, TableLatency

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = "data/latency"


def latency_names() -> list[str]:
    """The models that come with Headway."""
    folder = files("framework").joinpath(DATA)
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir())


def load_latency(name_or_file: str | Path) -> LinearLatency:
    """A latency model.

    Args:
        name_or_file: a name of `latency_names`, a JSON file such as `headway calibrate` writes,
            or MODEL@GPU: a model's directory or config.json, and a name of `gpu_names`.

    Raises:
        ConfigError: none of them, or the file is not one.
    """
    text, path = str(name_or_file), Path(name_or_file)
    model, at, gpu = text.rpartition("@")
    if at and not path.is_file():
        place = Path(model)
        file = place / "config.json" if place.is_dir() else place
        return from_model({"_name_or_path": file.absolute().parent.name, **_read(file)}, gpu)
    if path.suffix == ".json":
        return latency_from(_read(path))
    if text not in latency_names():
        names = latency_names()
        raise ConfigError(
            f"latency: got {text!r}, allowed: {', '.join(names)}, a .json file, or MODEL@GPU."
            f"{did_you_mean(text, names)}"
        )
    entry = files("framework").joinpath(DATA, f"{text}.json")
    return latency_from(json.loads(entry.read_text(encoding="utf-8")))


def latency_from(fields: Mapping[str, Any]) -> LinearLatency:
    """A latency model from the contents of a file.

    Raises:
        ConfigError: a field is unknown or wrong.
    """
    kind = TableLatency if CURVE in fields else LinearLatency
    return kind.from_mapping(fields)


def _read(path: Path) -> dict[str, Any]:
    """The object in a file."""
    if not path.is_file():
        raise ConfigError(f"latency: no such file: {str(path)!r}")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"latency: {str(path)!r} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(
            f"latency: {str(path)!r}: got {type(fields).__name__}, allowed: an object"
        )
    return fields
