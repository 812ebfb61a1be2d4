"""How the answers of several implementations become one. `hooks` puts these together.

Each function takes implementations and returns one positional callable. `answered` is a cell of
one string, in which the callable leaves the name of whoever gave the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from framework.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import CodeType

    from framework.request import Request

Asked: TypeAlias = "tuple[tuple[str, Callable[..., Any]], ...]"
"""(plugin name, positional callable) of each implementation, first asked first."""


def first(asked: Asked, everyone: str, answered: list[str]) -> Callable[..., Any]:
    """The first answer that is not None."""

    def call(*args: Any) -> Any:
        for name, ask in asked:
            answer = ask(*args)
            if answer is not None:
                answered[0] = name
                return answer
        answered[0] = everyone
        return None

    return call


def least(hook: str, asked: Asked, answered: list[str]) -> Callable[..., int | None]:
    """The least of the ints."""

    def call(*args: Any) -> int | None:
        tightest: int | None = None
        for name, ask in asked:
            bound = ask(*args)
            if bound is None:
                continue
            if type(bound) is not int:
                raise wrong(name, hook, bound, "an int of at least 0, or None", args[0])
            if tightest is None or bound < tightest:
                tightest = bound
                answered[0] = name
        return tightest

    return call


def all_of(hook: str, asked: Asked, answered: list[str]) -> Callable[..., bool]:
    """False if anybody objects; everybody is asked."""

    def call(*args: Any) -> bool:
        nobody_objects = True
        for name, ask in asked:
            answer = ask(*args)
            if answer is None or answer is True:
                continue
            if answer is not False:
                raise wrong(name, hook, answer, "True, False, or None", args[0])
            nobody_objects = False
            answered[0] = name
        return nobody_objects

    return call


def joined(hook: str, asked: Asked) -> Callable[..., dict[str, Any]]:
    """One dict of all fields."""

    def call(*args: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        givers: dict[str, str] = {}
        for name, ask in asked:
            answer = ask(*args)
            if answer is None:
                continue
            if not isinstance(answer, Mapping):
                raise wrong(name, hook, answer, "a mapping {field: value}, or None")
            for field in answer:
                if field in givers:
                    both = f"{givers[field]}, {name}"
                    got = f"both gave the field {field!r}"
                    allowed = "each field from one plugin"
                    raise PolicyError(plugin=both, hook=hook, got=got, allowed=allowed)
                givers[field] = name
            fields.update(answer)
        return fields

    return call


def told(asked: Asked) -> Callable[..., None]:
    """Everyone hears it."""
    listeners = tuple(function for _, function in asked)

    def call(*args: Any) -> None:
        for tell in listeners:
            tell(*args)

    return call


def listed(asked: Asked) -> Callable[..., list[Any]]:
    """All answers that are not None: what pluggy shows to the wrappers of a list hook."""
    functions = tuple(function for _, function in asked)

    def call(*args: Any) -> list[Any]:
        answers = [ask(*args) for ask in functions]
        return [answer for answer in answers if answer is not None]

    return call


def wrapped(
    wrappers: Sequence[Callable[..., Generator[None, Any, Any]]], body: Callable[..., Any]
) -> Callable[..., Any]:
    """The body inside its wrappers: they begin outermost first and end innermost first."""

    def call(*args: Any) -> Any:
        begun: list[Generator[None, Any, Any]] = []
        result: Any = None
        error: BaseException | None = None
        try:
            for wrapper in wrappers:
                generator = wrapper(*args)
                _begin(generator)
                begun.append(generator)
            result = body(*args)
        except BaseException as raised:
            error = raised
        for generator in reversed(begun):
            result, error = _end(generator, result, error)
        if error is not None:
            raise error
        return result

    return call


def _begin(generator: Generator[None, Any, Any]) -> None:
    try:
        next(generator)
    except StopIteration:
        raise _bad_wrapper(generator, "did not yield") from None


def _end(
    generator: Generator[None, Any, Any], result: Any, error: BaseException | None
) -> tuple[Any, BaseException | None]:
    """Finish one wrapper, and tell what the call returns or raises from here outwards."""
    try:
        if error is None:
            generator.send(result)
        else:
            generator.throw(error)
        generator.close()
    except StopIteration as stop:
        return stop.value, None
    except BaseException as raised:
        # A generator cannot let a StopIteration pass: Python makes it a RuntimeError.
        unchanged = isinstance(error, StopIteration) and raised.__cause__ is error
        return result, error if unchanged else raised
    # As in pluggy, the wrappers further out do not see this one.
    raise _bad_wrapper(generator, "has second yield")


def _bad_wrapper(generator: Generator[None, Any, Any], what: str) -> RuntimeError:
    code: CodeType = generator.gi_code  # type: ignore[attr-defined]
    place = f"{code.co_filename}:{code.co_firstlineno}"
    return RuntimeError(f"wrap_controller at {code.co_name!r} {place} {what}")


def wrong(
    plugin: str, hook: str, got: object, allowed: str, request: Request | None = None
) -> PolicyError:
    """The error for an answer that cannot be combined with others."""
    request_id = request.request_id if request is not None else None
    came = f"answered {got!r}"
    return PolicyError(plugin=plugin, hook=hook, got=came, allowed=allowed, request_id=request_id)


def always(answer: Any) -> Callable[..., Any]:
    """An implementation that gives this answer."""
    return lambda *_args: answer
