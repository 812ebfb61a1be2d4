"""Every error Headway raises on purpose. Each is one sentence a user can act on."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class HeadwayError(Exception):
    """Base of all errors that Headway raises on purpose."""


class ConfigError(HeadwayError, ValueError):
    """A limit or option is unknown, out of range, or contradicts another."""


class RequestError(HeadwayError, ValueError):
    """One request is refused or ended; every other request is unharmed."""


class ModelError(HeadwayError):
    """A model directory, architecture or weight file cannot be used."""


class PluginError(HeadwayError):
    """A plugin stack cannot be built: unknown name, misspelt hook, two owners, ..."""


class PolicyError(HeadwayError):
    """A plugin raised, or answered a hook with something the core cannot use.

    The step in which it happened was rolled back; the scheduler goes on with the next call.
    """

    def __init__(
        self,
        *,
        plugin: str,
        hook: str,
        got: str,
        allowed: str,
        request_id: str | None = None,
        step: int | None = None,
    ) -> None:
        self.plugin = plugin
        self.hook = hook
        self.got = got
        self.allowed = allowed
        self.request_id = request_id
        self.step = step
        self.result: Any = None
        """The StepResult, if the error came while results were applied: they are in the books."""
        super().__init__(self._sentence())

    def in_step(self, step: int) -> None:
        """Note the step in which it happened; the message tells it where no request is known."""
        self.step = step
        self.args = (self._sentence(),)

    def _sentence(self) -> str:
        about = "" if self.step is None else f" in step {self.step}"
        if self.request_id is not None:
            about = f" for request {self.request_id!r}"
        where = f"plugin {self.plugin!r}, hook {self.hook!r}{about}"
        return f"{where}: {self.got}; allowed: {self.allowed}"


class RunnerError(HeadwayError):
    """A runner's output does not match the plan it was given."""


class StallError(HeadwayError):
    """Work remains, nothing can be scheduled, and no outside event is awaited.

    `request_id` is the request that is blocked first.
    """

    def __init__(self, message: str, request_id: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id


class EngineDeadError(HeadwayError):
    """The engine's process has ended, or never came up; what was in it is lost."""


def named(kind: str | None, message: str) -> HeadwayError:
    """The error of that class name, as another process told it."""
    simple = (ConfigError, RequestError, ModelError, PluginError, RunnerError, EngineDeadError)
    of_name = {one.__name__: one for one in simple}
    return of_name.get(kind or "", HeadwayError)(message)


def bad_field(field: str, got: Any, allowed: str) -> ConfigError:
    """The error for one bad field: what it is called, what came, what is allowed."""
    return ConfigError(f"{field}: got {got!r}, allowed: {allowed}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' for the names closest to `word`, or an empty string."""
    close = get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def said(error: BaseException) -> str:
    """What an error says, if it can."""
    try:
        return str(error)
    except Exception as further:
        return f"(its text cannot be made: {type(further).__name__})"
