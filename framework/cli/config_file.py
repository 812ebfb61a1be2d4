"""--config FILE: a TOML file with what the command line takes, which wins where both speak."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from framework.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from framework.cli.options import Command

NOT_FOR_FILES = {"config", "help"}


def config_option(command: Command) -> Command:
    """Add --config."""
    option = click.option(
        "--config",
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_use,
        metavar="FILE",
        help="TOML with any of these options, as name = value; the command line wins.",
    )
    return option(command)


def _use(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.default_map = read_config(path, context.command)


def read_config(path: Path, command: click.Command) -> dict[str, Any]:
    """The values of a config file, by parameter of the command.

    Raises:
        ConfigError: it cannot be read, or a key or a type is not allowed; the message names both.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    known = _parameters(command)
    values: dict[str, Any] = {}
    for key, value in data.items():
        parameter = known.get(key.replace("_", "-"))
        if parameter is None:
            hint = did_you_mean(key, known)
            raise ConfigError(
                f"{path}: {key}: no such key.{hint} Allowed: {', '.join(sorted(known))}"
            )
        allowed = _problem(parameter, value)
        if allowed is not None:
            raise ConfigError(f"{path}: {key}: got {value!r}, allowed: {allowed}")
        name = parameter.name or key
        if name in values:
            raise ConfigError(f"{path}: {key}: it is given twice; allowed: once")
        values[name] = value
    return values


def _parameters(command: click.Command) -> dict[str, click.Parameter]:
    """{what a file calls it: parameter}: long options without dashes, and arguments."""
    found: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            long = [name[2:] for name in parameter.opts if name.startswith("--")]
            found.update({name: parameter for name in long if name not in NOT_FOR_FILES})
        elif parameter.name is not None:
            found[parameter.name] = parameter
    return found


def _problem(parameter: click.Parameter, value: Any) -> str | None:
    """What is allowed, if this is not."""
    if getattr(parameter, "is_flag", False):
        return None if type(value) is bool else "true or false"
    kinds, told = _kinds(parameter.type)
    if not parameter.multiple:
        return None if type(value) in kinds else told
    good = isinstance(value, list) and all(type(item) in kinds for item in value)
    return None if good else f"a list, each {told}"


def _kinds(kind: Any) -> tuple[tuple[type, ...], str]:
    if isinstance(kind, click.types.IntParamType):
        return (int,), "an int"
    if isinstance(kind, click.types.FloatParamType):
        return (int, float), "a number"
    return (str,), "a string"
