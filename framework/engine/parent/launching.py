"""EngineProcess: the handle that a parent holds on an engine process, from spawning to its end."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import shutil
import signal
import tempfile
from typing import TYPE_CHECKING, Final

from attrs import define

from framework import errors
from framework.engine.child.running import run_engine
from framework.errors import EngineDeadError, PluginError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from framework.engine.settings import EngineSettings

PATIENCE_S: Final = 5.0
"""How long an engine that was told to end may take before it is made to."""


@define(eq=False)
class EngineProcess:
    """A handle on an engine's process.

    Attributes:
        folder: holds its sockets; only this user may enter it.
    """

    folder: str
    _process: BaseProcess
    _pipe: Connection

    @classmethod
    def spawn(cls, settings: EngineSettings) -> EngineProcess:
        """Start a process; it is not ready yet.

        Raises:
            PluginError: a plugin instance in the settings cannot be sent to another process.
        """
        spawning = multiprocessing.get_context("spawn")
        folder = tempfile.mkdtemp(prefix="headway-")  # mode 0700
        here, there = spawning.Pipe(duplex=False)
        verbosity = logging.getLogger("headway").getEffectiveLevel()
        process = spawning.Process(
            target=run_engine,
            args=(settings, folder, there, verbosity),
            name="headway-engine",
            daemon=True,
        )
        try:
            process.start()
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, TypeError | AttributeError | pickle.PicklingError):
                raise
            raise PluginError(
                f"plugins: an instance cannot be sent to the engine's process: {error}; "
                "name the plugin instead, as module:Name or file.py:Name"
            ) from error
        there.close()
        return cls(folder, process, here)

    def wait_ready(self) -> None:
        """Block until it serves.

        Raises:
            ModelError, PluginError, ConfigError: what opening the model raised there.
            EngineDeadError: it ended first.
        """
        try:
            with self._pipe:  # nobody else closes it: that would be under the hands of this thread
                kind, sentence = self._pipe.recv()
        except EOFError as error:
            self._process.join()
            why = f"{self.obituary()} before it was ready"
            if self._process.exitcode == 1:
                why += "; a script that starts an engine needs `if __name__ == '__main__':`"
            self.stop()
            raise EngineDeadError(why) from error
        if kind != "ready":
            self.stop()
            raise errors.named(kind, sentence)

    @property
    def sentinel(self) -> int:
        """Becomes readable when the process ends."""
        return self._process.sentinel

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def join(self) -> None:
        """Wait until the process has ended."""
        self._process.join()

    def obituary(self) -> str:
        """How the process ended, as the beginning of a sentence."""
        code = self._process.exitcode
        if code is not None and code < 0:
            known = {one.value: one.name for one in signal.Signals}
            return f"the engine process was killed by {known.get(-code, f'signal {-code}')}"
        return f"the engine process ended with exit code {code}"

    def stop(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait for the end, insist if it does not come, and clean up; with 0, kill it."""
        self._process.join(timeout_s)
        if timeout_s and self._process.is_alive():
            self._process.terminate()
            self._process.join(timeout_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        shutil.rmtree(self.folder, ignore_errors=True)
