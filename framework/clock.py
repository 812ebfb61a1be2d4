"""Clocks: real time, and time that moves only when it is told to."""

from __future__ import annotations

import time
from typing import Any

from attrs import define

from framework.errors import ConfigError


class MonotonicClock:
    """Real time, for schedulers that are given no clock."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()


@define(eq=False)
class VirtualClock:
    """A clock that moves only when it is told to; give the same one to scheduler and runner."""

    _now: float = 0.0

    def now(self) -> float:
        """Seconds since the start."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ConfigError: `seconds` is negative or no number.
        """
        self._now += check_seconds(seconds, "seconds")

    def advance_to(self, moment: float) -> None:
        """Let time pass until a moment; nothing happens if it has passed."""
        self._now = max(self._now, check_seconds(moment, "moment"))


def check_seconds(value: Any, name: str) -> float:
    """A finite number of at least 0.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ConfigError(f"{name}: got {value!r}, allowed: seconds, a number of at least 0")
    return float(value)
