"""How long hooks take: implementations that count their calls and their seconds."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define

from framework.errors import said

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import CodeType


@define
class HookTime:
    """Calls of one hook of one plugin, and what they took.

    Attributes:
        plugin: its name.
        hook: the hook's name.
        num_calls: calls, those that raised included.
        seconds: real time of them all, the hooks that they asked themselves included; of a
            wrapper its own part, without what it is wrapped around.
    """

    plugin: str
    hook: str
    num_calls: int = 0
    seconds: float = 0.0


Times: TypeAlias = dict[tuple[str, str], HookTime]
"""{(plugin, hook): totals}"""


def failure(error: BaseException) -> RuntimeError:
    """What would end more than the hook, as an ordinary exception raised at the same place."""
    return RuntimeError(f"{type(error).__name__}: {said(error)}").with_traceback(
        error.__traceback__
    )


def timed(function: Callable[..., Any], total: HookTime) -> Callable[..., Any]:
    """The implementation, adding to the total."""

    def call(*args: Any) -> Any:
        began = perf_counter()
        try:
            return function(*args)
        except (Exception, KeyboardInterrupt):  # Ctrl-C is the user's
            raise
        except BaseException as error:
            raise failure(error) from error
        finally:
            total.seconds += perf_counter() - began
            total.num_calls += 1

    return call


def timed_wrapper(
    function: Callable[..., Generator[None, Any, Any]], total: HookTime
) -> Callable[..., TimedGenerator]:
    """The wrapper, its two halves adding to the total."""

    def call(*args: Any) -> TimedGenerator:
        total.num_calls += 1
        return TimedGenerator(function(*args), total)

    return call


class TimedGenerator:
    """A wrapper's generator, timed while it runs itself."""

    __slots__ = ("_generator", "_total")

    def __init__(self, generator: Generator[None, Any, Any], total: HookTime) -> None:
        self._generator = generator
        self._total = total

    @property
    def gi_code(self) -> CodeType:
        """The code of the wrapper."""
        code: CodeType = self._generator.gi_code  # type: ignore[attr-defined]
        return code

    def __iter__(self) -> TimedGenerator:
        return self

    def __next__(self) -> Any:
        return self._run(self._generator.__next__)

    def send(self, value: Any) -> Any:
        """Go on with what the wrapped call returned."""
        return self._run(self._generator.send, value)

    def throw(self, error: BaseException) -> Any:
        """Go on with what the wrapped call raised."""
        return self._run(self._generator.throw, error)

    def close(self) -> None:
        """End it."""
        self._run(self._generator.close)

    def _run(self, advance: Callable[..., Any], *values: Any) -> Any:
        began = perf_counter()
        try:
            return advance(*values)
        except (Exception, KeyboardInterrupt):  # Ctrl-C is the user's
            raise
        except BaseException as error:
            raise failure(error) from error
        finally:
            self._total.seconds += perf_counter() - began
