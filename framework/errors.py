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
        self, *, plugin: str, hook: str, got: str, allowed: str, request_id: str | None = None
    ) -> None:
        about = f" for request {request_id!r}" if request_id is not None else ""
        super().__init__(f"plugin {plugin!r}, hook {hook!r}{about}: {got}; allowed: {allowed}")
        self.plugin = plugin
        self.hook = hook
        self.got = got
        self.allowed = allowed
        self.request_id = request_id
        self.result: Any = None
        """The StepResult, if the error came while results were applied: they are in the books."""


class RunnerError(HeadwayError):
    """A runner's output does not match the plan it was given."""


class StallError(HeadwayError):
    """Work remains, nothing can be scheduled, and no outside event is awaited."""


class EngineDeadError(HeadwayError):
    """The engine's process has ended, or never came up; what was in it is lost."""


def bad_field(field: str, got: Any, allowed: str) -> ConfigError:
    """The error for one bad field: what it is called, what came, what is allowed."""
    return ConfigError(f"{field}: got {got!r}, allowed: {allowed}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' for the names closest to `word`, or an empty string."""
    close = get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
