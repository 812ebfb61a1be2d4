"""Signals that ask a server to end: none is lost between two stages, none cuts its end off."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _do_nothing(_: int) -> None:
    """Wait for the next stage."""


@define(eq=False)
class Signals:
    """What came, and who is told.

    Attributes:
        first: the first signal, or None.
    """

    first: int | None = None
    _act: Callable[[int], None] = field(default=_do_nothing, init=False)

    def tell(self, act: Callable[[int], None]) -> None:
        """From here on `act` is told of each signal, also of the first one if it has come."""
        self._act = act
        if self.first is not None:
            act(self.first)

    def take(self, number: int) -> None:
        """A signal has come."""
        if self.first is None:
            self.first = number
        self._act(number)


@contextmanager
def signals_caught() -> Iterator[Signals]:
    """In the running loop, until the block ends; after a signal the process is deaf to others."""
    loop, signals = asyncio.get_running_loop(), Signals()
    # Under nohup a hang-up is to be ignored.
    is_deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    caught = [each for each in ENDING if not (is_deaf and each is signal.SIGHUP)]
    for each in caught:
        loop.add_signal_handler(each, signals.take, each)
    try:
        yield signals
    finally:
        for each in caught:
            loop.remove_signal_handler(each)
            if signals.first is not None:  # the interpreter needs a while to end
                signal.signal(each, signal.SIG_IGN)
