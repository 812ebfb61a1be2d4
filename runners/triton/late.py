"""LateOutput: a step's results, which come to the host while later steps run."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from typing import TYPE_CHECKING

from framework import RunnerOutput

if TYPE_CHECKING:
    from collections.abc import Callable


class LateOutput(Future[RunnerOutput]):
    """A future that is filled by whoever asks first, in whichever thread.

    Args:
        finish: waits for the device and reads what the step left; called once.
    """

    def __init__(self, finish: Callable[[], RunnerOutput]) -> None:
        super().__init__()
        self._finish = finish
        self._lock = Lock()

    def result(self, timeout: float | None = None) -> RunnerOutput:
        """The step's output; waits for the device, whatever the timeout."""
        self._fill()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What reading it raised, if anything; waits likewise."""
        self._fill()
        return super().exception(timeout)

    def _fill(self) -> None:
        with self._lock:
            if not self.done():
                try:
                    self.set_result(self._finish())
                except Exception as error:
                    self.set_exception(error)
