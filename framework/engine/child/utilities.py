"""What a front may ask of a running engine by name: stats, pause, resume, plugins, swap, ...

Each is called between two steps, in the engine's own thread.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

import attrs
from attrs import define

from framework.engine.protocol import Reply
from framework.errors import ConfigError, HeadwayError, did_you_mean, said

if TYPE_CHECKING:
    from framework.engine.process import EngineCoreProc
    from framework.engine.protocol import Utility

log = logging.getLogger("headway.process")
LONGEST_NAME = 64
FAILED = HeadwayError.__name__


@define(eq=False)
class Utilities:
    """The calls; every public method here is one."""

    _engine: EngineCoreProc

    def call(self, asked: Utility) -> Reply:
        """Make one call; what goes wrong comes back as its reply."""
        try:
            value = self._method(asked)(*asked.arguments)
        except HeadwayError as error:
            return Reply(asked.call, error=str(error), kind=type(error).__name__)
        except BaseException as error:  # whatever a plugin does when it is loaded or asked
            log.exception("the utility %r failed", asked.name)
            return Reply(asked.call, error=f"{type(error).__name__}: {said(error)}", kind=FAILED)
        return Reply(asked.call, value)

    def _method(self, asked: Utility) -> Any:
        names = [name for name in vars(Utilities) if not name.startswith("_") and name != "call"]
        if asked.name not in names:
            raise ConfigError(
                f"utility: got {asked.name[:LONGEST_NAME]!r}, allowed: {', '.join(names)}."
                f"{did_you_mean(asked.name[:LONGEST_NAME], names)}"
            )
        method = getattr(self, asked.name)
        try:
            inspect.signature(method).bind(*asked.arguments)
        except TypeError as error:
            raise ConfigError(f"utility {asked.name!r}: {error}") from error
        return method

    def stats(self) -> dict[str, Any]:
        """How the engine stands; see `framework.engine.client.Stats`."""
        engine = self._engine
        scheduler = engine.core.scheduler
        kv = scheduler.kv
        used = None if kv is None else 1 - kv.num_free_blocks / kv.num_total_blocks
        return {
            "num_running": len(scheduler.running),
            "num_waiting": len(scheduler.waiting_requests()),
            "kv_usage": used,
            "num_free_blocks": None if kv is None else kv.num_free_blocks,
            "num_total_blocks": None if kv is None else kv.num_total_blocks,
            "counters": attrs.asdict(scheduler.counters),
            "hooks": [list(attrs.astuple(one)) for one in scheduler.hook_times()],
            "is_paused": engine.is_paused,
            "plugins": self.plugins(),
            "num_plugin_errors": engine.faults.num_errors,
            "last_plugin_error": engine.faults.last_error,
        }

    def plugins(self) -> list[str]:
        """The names of the stack, last asked first."""
        return self._engine.plugins

    def pause(self) -> None:
        """Make no further step; requests go on to be accepted."""
        self._engine.is_paused = True

    def resume(self) -> None:
        """Make steps again."""
        self._engine.is_paused = False

    def reset_prefix_cache(self) -> bool:
        """Forget what the prefix cache holds; False, and nothing done, if requests hold blocks."""
        return self._engine.core.scheduler.reset_prefix_cache()

    def swap(self, specs: Any) -> list[str]:
        """Put another stack in place of the running one; returns its names."""
        if not isinstance(specs, list) or not all(isinstance(one, str) for one in specs):
            raise ConfigError(f"plugins: got {specs!r}, allowed: a list of strings")
        self._engine.swap(specs)
        return self.plugins()
