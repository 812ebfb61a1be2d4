"""Constructor arguments in the text of a spec: `chunked_prefill(cap=256)`, literals only."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

from framework.errors import HeadwayError, PluginError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def split_arguments(spec: str) -> tuple[str, dict[str, Any]]:
    """'chunked_prefill(cap=256)' -> ('chunked_prefill', {'cap': 256})."""
    if not spec.endswith(")"):
        if "(" in spec and ":" not in spec:
            raise PluginError(f"plugin {spec!r}: its arguments do not end in a parenthesis")
        return spec, {}
    # A path may hold parentheses too: the arguments begin where the rest reads as one call.
    for start in (place.start() for place in re.finditer(r"\(", spec)):
        call = _as_call(spec[start:])
        if call is not None:
            target = spec[:start].strip()
            return target, _keywords(target, call)
    raise PluginError(f"plugin {spec!r}: its arguments cannot be read; write name(argument=value)")


def _as_call(parenthesis: str) -> ast.Call | None:
    try:
        body = ast.parse(f"_{parenthesis}", mode="eval").body
    except SyntaxError:
        return None
    return body if isinstance(body, ast.Call) and isinstance(body.func, ast.Name) else None


def _keywords(target: str, call: ast.Call) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if call.args:
        written = ast.unparse(call.args[0])
        raise PluginError(
            f"plugin {target!r}: the argument {written} has no name; write name={written}"
        )
    for keyword in call.keywords:
        written = ast.unparse(keyword.value)
        if keyword.arg is None:
            raise PluginError(f"plugin {target!r}: **{written} is not allowed; write name=value")
        if keyword.arg in arguments:
            raise PluginError(f"plugin {target!r}: the argument {keyword.arg!r} comes twice")
        try:
            arguments[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError):
            raise PluginError(
                f"plugin {target!r}, argument {keyword.arg!r}: got {written}, allowed: "
                "a literal such as 256, 0.5, True, None, 'text' or [1, 2]"
            ) from None
    return arguments


def construct(target: str, factory: Callable[..., object], arguments: Mapping[str, Any]) -> object:
    parameters = inspect.signature(factory).parameters
    for name in arguments:
        if name not in parameters:
            allowed = ", ".join(parameters) or "none"
            raise PluginError(
                f"plugin {target!r} has no argument {name!r}."
                f"{did_you_mean(name, parameters)} Allowed: {allowed}"
            )
    for name, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not variadic and name not in arguments:
            raise PluginError(
                f"plugin {target!r} needs the argument {name!r}: write {target}({name}=...)"
            )
    try:
        return factory(**arguments)
    except HeadwayError as error:
        raise PluginError(f"plugin {target!r}: {error}") from error
    except Exception as error:
        raise PluginError(
            f"plugin {target!r}: its constructor raised {type(error).__name__}: {error}"
        ) from error
