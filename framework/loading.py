"""From what a user writes to a plugin instance. `stack` is the public face of this file.

Entry points are looked up by name: installed never means active, and nothing else is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen

from framework.arguments import construct, split_arguments
from framework.errors import PluginError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints
    from types import ModuleType

GROUP: Final = "headway.plugins"

Spec: TypeAlias = "str | object"
"""A plugin instance, or a string: `name`, `module:attribute`, `path/to/file.py:Name`, each with
constructor arguments if wanted, as in `chunked_prefill(cap=256)`."""


@frozen
class InstalledPlugin:
    """One entry of `headway plugins`: what is installed, whether used or not.

    Attributes:
        name: what a stack calls it.
        value: where it lives, `module:attribute`.
        distribution, version: who ships it.
    """

    name: str
    value: str
    distribution: str
    version: str


def installed_plugins() -> list[InstalledPlugin]:
    """Every plugin that an installed distribution offers, by name; none of them is imported."""
    return sorted(
        (
            InstalledPlugin(entry.name, entry.value, entry.dist.name, entry.dist.version)
            for entry in _entry_points()
            if entry.dist is not None
        ),
        key=lambda plugin: (plugin.name, plugin.distribution),
    )


def load_plugin(spec: Spec) -> object:
    """The plugin that a spec means; a string gives a new instance each time.

    Raises:
        PluginError: the name is unknown, the file or module cannot be imported, a constructor
            argument is unknown, missing or refused, or a class came where an instance is wanted.
    """
    if isinstance(spec, type):
        raise PluginError(
            f"plugin {spec.__name__} is a class, and a stack takes instances: "
            f"write {spec.__name__}()"
        )
    if not isinstance(spec, str):
        return spec
    target, arguments = split_arguments(spec.strip())
    found = _find(target)
    if inspect.isclass(found):
        try:
            return construct(target, found, arguments)
        except SystemExit as error:
            raise PluginError(
                f"plugin {target!r}: its constructor raised SystemExit: {error}"
            ) from error
    if arguments:
        named = ", ".join(map(repr, arguments))
        raise PluginError(
            f"plugin {target!r}: it is an instance already and takes no arguments, got {named}"
        )
    return found


def plugin_name(plugin: object) -> str:
    """The name of a plugin: its attribute `name`, else its class name in snake case."""
    name = getattr(plugin, "name", None)
    if isinstance(name, str) and name:
        return name
    words = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    return re.sub(words, "_", type(plugin).__name__).lower().strip("_")


def _find(target: str) -> object:
    place, colon, attribute = target.rpartition(":")
    if not colon:
        return _installed(target)
    module = _file_module(target, place) if place.endswith(".py") else _module(target, place)
    if not hasattr(module, attribute):
        names = [name for name in vars(module) if not name.startswith("_")]
        raise PluginError(
            f"plugin {target!r}: {place} has no attribute {attribute!r}."
            f"{did_you_mean(attribute, names)}"
        )
    return getattr(module, attribute)


def _module(target: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"plugin {target!r}: cannot import {name!r}, {type(error).__name__}: {error}"
        ) from error


def _file_module(target: str, place: str) -> ModuleType:
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise PluginError(f"plugin {target!r}: there is no file {place}")
    name = "headway_file_" + re.sub(r"\W", "_", str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"plugin {target!r}: {place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise PluginError(
            f"plugin {target!r}: {place} raised {type(error).__name__}: {error}"
        ) from error
    return module


def _entry_points(name: str | None = None) -> EntryPoints:
    from importlib.metadata import entry_points  # noqa: PLC0415  (a third of our import time)

    return entry_points(group=GROUP) if name is None else entry_points(group=GROUP, name=name)


def _installed(name: str) -> object:
    entries = tuple(_entry_points(name))
    if not entries:
        known = sorted({entry.name for entry in _entry_points()})
        hint = " To use a file, write path/to/file.py:Name." if name.endswith(".py") else ""
        raise PluginError(
            f"no plugin is called {name!r}.{did_you_mean(name, known)}{hint} "
            f"Installed: {', '.join(known) or 'none'}"
        )
    if len({entry.value for entry in entries}) > 1:
        owners = ", ".join(f"{entry.value} of {_distribution(entry)}" for entry in entries)
        raise PluginError(
            f"several distributions install a plugin called {name!r} ({owners}); "
            "write module:attribute to say which"
        )
    _refuse_shadow(entries[0])
    try:
        return entries[0].load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"plugin {name!r} ({entries[0].value} of {_distribution(entries[0])}) cannot be "
            f"imported, {type(error).__name__}: {error}"
        ) from error


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed distribution"


def _refuse_shadow(entry: EntryPoint) -> None:
    """Our top-level folders have common names; say so where another one was found first."""
    top = entry.module.partition(".")[0]
    if _distribution(entry) != "headway":
        return
    ours = Path(__file__).resolve().parents[1] / top
    spec = importlib.util.find_spec(top)
    places = [Path(place).resolve() for place in (spec and spec.submodule_search_locations) or ()]
    if spec is not None and ours not in places:
        won = spec.origin or ", ".join(map(str, places))
        raise PluginError(
            f"plugin {entry.name!r}: the package {top!r} comes from {won}, which hides "
            f"Headway's own in {ours}; rename it, or put it later on sys.path"
        )
