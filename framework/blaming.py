"""Whose fault an error is: the plugin, the hook and, where the hook has one, the request."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from framework.errors import HeadwayError, PolicyError, said
from framework.hookspecs import KIND_OF, PARAMETERS
from framework.request import Request

if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType

    import pluggy

    Implementations = dict[CodeType, list[tuple[str, pluggy.HookImpl]]]


class Culprit(NamedTuple):
    """Whose implementation raised, and while it was asked about whom."""

    plugin: str
    hook: str
    request: Request | None


def blamed(error: Exception, manager: pluggy.PluginManager, step: int | None = None) -> Exception:
    """The error as the user should see it: a plugin's fault names the plugin and the hook."""
    if isinstance(error, HeadwayError):
        if isinstance(error, PolicyError) and step is not None:
            error.in_step(step)
        return error
    who = culprit(error, manager)
    if who is None:
        return error
    return PolicyError(
        plugin=who.plugin,
        hook=who.hook,
        got=f"raised {type(error).__name__}: {said(error)} ({_place(error)})",
        allowed="an answer, or None",
        request_id=None if who.request is None else who.request.request_id,
        step=step,
    )


def _place(error: BaseException) -> str:
    """Where it was raised: file and line."""
    last = traceback.extract_tb(error.__traceback__, limit=-1)[0]
    return f"{Path(last.filename).name}, line {last.lineno}"


def culprit(error: BaseException, manager: pluggy.PluginManager) -> Culprit | None:
    """The innermost implementation in the traceback, or None: not a plugin's."""
    implementations = _implementations(manager)
    found: Culprit | None = None
    frames: list[FrameType] = []
    level: TracebackType | None = error.__traceback__
    while level is not None:
        frames.append(level.tb_frame)
        own = _owners(level.tb_frame, implementations)
        if own:
            hook, one = own[0]
            found = Culprit(one.plugin_name, hook, _subject(hook, frames))
        level = level.tb_next
    return found


def _implementations(manager: pluggy.PluginManager) -> Implementations:
    implementations: Implementations = {}
    for hook in KIND_OF:
        for one in getattr(manager.hook, hook).get_hookimpls():
            for code in _codes(one.function):
                implementations.setdefault(code, []).append((hook, one))
    return implementations


def _owners(
    frame: FrameType, implementations: Implementations
) -> list[tuple[str, pluggy.HookImpl]]:
    """Two instances of one class share their code; the frame's self tells them apart."""
    here = implementations.get(frame.f_code, [])
    values = {id(value) for value in frame.f_locals.values()} if here else set()
    return [pair for pair in here if id(pair[1].plugin) in values] or here


def _subject(hook: str, frames: list[FrameType]) -> Request | None:
    """The hook's request: an implementation that does not name it has a caller that was given it,
    by name or among all arguments of the hook."""
    parameters = PARAMETERS[hook]
    if "request" not in parameters:
        return None
    for frame in reversed(frames):
        found = frame.f_locals.get("request")
        arguments = frame.f_locals.get("args")
        if isinstance(arguments, tuple) and len(arguments) == len(parameters):
            found = arguments[parameters.index("request")]
        if isinstance(found, Request):
            return found
    return None


def _codes(function: Any) -> list[CodeType]:
    """The code of an implementation, and of what its decorators wrap."""
    function = getattr(function, "__func__", function)
    codes = [function.__code__] if hasattr(function, "__code__") else []
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
        codes.append(function.__code__)
    return codes
