"""A proxy around a plugin: it times each hook, and notices what a hook must not do.

A plugin must not write to requests or to the plan, and must not ask for what no server knows. The
proxy stands in a stack where the plugin would; its `__wrapped__` is the plugin.
"""

from __future__ import annotations

import inspect
from functools import wraps
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
from attrs import define, field, frozen

from framework.hookspecs import PROJECT
from framework.output import SchedulerOutput
from framework.request import Request
from framework.stack import plugin_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from framework.loading import Spec

PLAN_FIELDS: Final = ("num_scheduled_tokens", "total_num_scheduled_tokens", "preempted_req_ids")


class MisuseError(Exception):
    """A hook did what no hook may do."""


@frozen
class Misuse:
    """What a hook must not have done."""

    plugin: str
    hook: str
    sentence: str


@define(eq=False)
class HookTime:
    """Calls of one hook of one plugin, and the seconds they took, other hooks left out."""

    calls: int = 0
    seconds: float = 0.0

    @property
    def mean_us(self) -> float:
        """Microseconds of one call."""
        return self.seconds / max(1, self.calls) * 1e6


@define(eq=False)
class Watch:
    """What the proxies of one stack saw.

    Attributes:
        times: {(plugin, hook): time}.
        misuses: what must not have been done, in order.
        checks: False = only take times, which costs less.
    """

    times: dict[tuple[str, str], HookTime] = field(factory=dict)
    misuses: list[Misuse] = field(factory=list)
    checks: bool = True
    _inside: list[list[Any]] = field(factory=list, init=False)
    """[plugin, hook, seconds of hooks within] of each call under way."""

    @property
    def inside(self) -> tuple[str, str] | None:
        """(plugin, hook) of the innermost call under way."""
        return (self._inside[-1][0], self._inside[-1][1]) if self._inside else None

    def misused(self, sentence: str) -> MisuseError:
        """Note that the hook under way did what it must not; the error to raise."""
        plugin, hook = self.inside or ("?", "?")
        self.misuses.append(Misuse(plugin, hook, sentence))
        return MisuseError(sentence)

    def call(self, plugin: str, hook: str, function: Callable[..., Any], args: Any) -> Any:
        """One call of a hook, timed and, if wished, watched."""
        before = [_state(each) for each in args] if self.checks else None
        time = self.times.setdefault((plugin, hook), HookTime())
        frame: list[Any] = [plugin, hook, 0.0]
        self._inside.append(frame)
        start = perf_counter()
        try:
            answer = function(*args)
        finally:
            spent = perf_counter() - start
            self._inside.pop()
            time.calls += 1
            time.seconds += spent - frame[2]
            if self._inside:
                self._inside[-1][2] += spent
        if before is not None:
            self._compare(plugin, hook, before, args)
        return answer

    def _compare(self, plugin: str, hook: str, before: list[Any], args: Any) -> None:
        for state, each in zip(before, args, strict=True):
            if state != _state(each):
                what = "the plan" if isinstance(each, SchedulerOutput) else "a request"
                self.misuses.append(Misuse(plugin, hook, f"the hook changed the tokens of {what}"))
                raise MisuseError(f"the hook changed the tokens of {what}")


class Proxy:
    """What stands for a plugin; everything but its hooks is the plugin's own."""

    def __init__(self, plugin: object, watch: Watch) -> None:
        self.__wrapped__ = plugin
        self.name = plugin_name(plugin)
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def proxied(plugin: object, watch: Watch) -> Any:
    """A plugin whose hooks are the given one's, watched."""
    name = plugin_name(plugin)
    methods = {
        attribute: _wrapper(name, hook, method, watch)
        if options["wrapper"]
        else _body(name, hook, method, watch)
        for attribute, hook, method, options in _implementations(plugin)
    }
    return type(f"{type(plugin).__name__}Proxy", (Proxy,), methods)(plugin, watch)


def fresh(spec: Spec) -> Spec:
    """A spec that may be used once more: a class is called, an instance built anew.

    A class of attrs is built from its arguments; any other instance is copied in depth.
    """
    if isinstance(spec, str):
        return spec
    if isinstance(spec, type):
        return cast(object, spec())
    if attrs.has(type(spec)):
        return cast(object, attrs.evolve(cast(Any, spec)))
    from copy import deepcopy  # noqa: PLC0415

    return deepcopy(spec)


def hook_rows(watch: Watch, num_steps: int) -> list[tuple[str, str, int, float, float]]:
    """(plugin, hook, calls, µs a call, µs a step), the dearest first."""
    rows = [
        (plugin, hook, time.calls, time.mean_us, time.seconds / max(1, num_steps) * 1e6)
        for (plugin, hook), time in watch.times.items()
    ]
    return sorted(rows, key=lambda row: -row[4])


def _implementations(plugin: object) -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    """(attribute, hook, bound method, options) of each marked method."""
    for attribute in dir(plugin):
        if inspect.isroutine(inspect.getattr_static(plugin, attribute, None)):
            method = getattr(plugin, attribute)
            options = getattr(method, f"{PROJECT}_impl", None)
            if isinstance(options, dict):
                yield attribute, options.get("specname") or attribute, method, options


def _body(plugin: str, hook: str, method: Any, watch: Watch) -> Any:
    def call(_self: object, *args: Any) -> Any:
        return watch.call(plugin, hook, method, args)

    return _disguised(call, method)


def _wrapper(plugin: str, hook: str, method: Any, watch: Watch) -> Any:
    def call(_self: object, *args: Any) -> Any:
        body = method(*args)
        watch.call(plugin, hook, next, (body,))
        try:
            answer = yield
        except BaseException as error:
            go_on: tuple[Any, Any] = (body.throw, error)
        else:
            go_on = (body.send, answer)
        done, result = watch.call(plugin, hook, _last, go_on)
        if not done:
            raise RuntimeError(f"plugin {plugin!r}, hook {hook!r}: a wrapper has one yield")
        return result

    return _disguised(call, method)


def _last(go_on: Callable[[Any], Any], value: Any) -> tuple[bool, Any]:
    """What a generator returns when it goes on."""
    try:
        go_on(value)
    except StopIteration as stop:
        return True, stop.value
    return False, None


def _disguised(call: Any, method: Any) -> Any:
    """The function under the name, options and parameters of the method it stands for."""
    function = getattr(method, "__func__", method)
    disguised: Any = wraps(function)(call)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = inspect.signature(method).parameters.values()
    positional = [each.replace(kind=each.POSITIONAL_ONLY) for each in parameters]
    disguised.__signature__ = inspect.Signature([own, *positional])
    disguised.__qualname__ = f"Proxy.{method.__name__}"
    return disguised


def _state(value: object) -> Sequence[Any]:
    """What a hook must leave alone and no `__setattr__` sees."""
    if isinstance(value, Request):
        return len(value.all_token_ids), len(value.spec_token_ids), sum(value.all_token_ids[-4:])
    if isinstance(value, SchedulerOutput):
        planned = dict(value.num_scheduled_tokens)
        return planned, *(getattr(value, name) for name in PLAN_FIELDS[1:])
    if isinstance(value, list | tuple):
        return [_state(each) for each in value]
    return ()
