"""The engine's process: what runs in it, and the handle that its parent holds.

It is spawned, opens the model, binds two sockets in a private folder and tells its parent over a
pipe; it ends with its parent, however that ends.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final

import zmq
from attrs import define

from framework import errors
from framework.engine.core import EngineCore
from framework.engine.incoming import Accepts
from framework.engine.process import EngineCoreProc
from framework.engine.protocol import HARD_LIMIT_BYTES, EngineInfo, Shutdown
from framework.engine.receiving import Inbox, PeerLost
from framework.engine.sending import Outbox
from framework.errors import EngineDeadError, HeadwayError, PluginError
from framework.metrics import Recorder
from framework.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from framework.engine.models import LoadedModel
    from framework.engine.receiving import InputQueue
    from framework.engine.settings import EngineSettings
    from framework.loading import Spec

NOBODY: Final = b""
ORPHAN_S: Final = 5.0
"""How long an engine whose parent is gone may take to end by itself."""
PATIENCE_S: Final = 5.0
"""How long an engine that was told to end may take before it is made to."""
SWITCH_S: Final = 0.0005
"""Threads of the engine take turns so often: the default of 5 ms would hold back each output."""
log = logging.getLogger("headway.process")


# ---------------------------------------------------------------------------------------------
# in the child
# ---------------------------------------------------------------------------------------------


def run_engine(settings: EngineSettings, folder: str, pipe: Connection, verbosity: int) -> None:
    """The whole life of an engine's process."""
    logging.basicConfig(level=verbosity, format="%(asctime)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    try:
        model, stack = settings.open()
        engine, inbox = build_engine(model, stack, folder)
    except HeadwayError as error:
        pipe.send((type(error).__name__, str(error)))
        return
    except BaseException as error:
        why = f"the engine process could not start: {type(error).__name__}: {error}"
        pipe.send((EngineDeadError.__name__, why))
        raise
    signal.signal(signal.SIGTERM, lambda *_: engine.queue.put((NOBODY, Shutdown(drain=False))))
    Thread(target=_watch_parent, args=(engine.queue, folder), daemon=True).start()
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)
    inbox.start()
    engine.outbox.start()
    pipe.send(("ready", ""))
    try:
        engine.run_busy_loop()
    finally:
        inbox.close()
        engine.outbox.close()
        engine.core.close()
        model.runner.close()
        shutil.rmtree(folder, ignore_errors=True)  # a parent that just ends leaves it


def build_engine(
    model: LoadedModel, stack: Sequence[Spec], folder: str
) -> tuple[EngineCoreProc, Inbox]:
    """An engine over a loaded model, with bound sockets and threads that have not started."""
    recorder = Recorder()
    core = EngineCore(Scheduler(model.config, [*stack, recorder], timed=True), model.runner)
    entry, way_out = _bound(folder)
    queue: InputQueue = SimpleQueue()
    outbox = Outbox(way_out, lambda peer: queue.put((peer, PeerLost())))
    engine = EngineCoreProc(core, recorder, queue, outbox)
    accepts = Accepts(
        max_model_len=model.config.max_model_len,
        vocab_size=getattr(model.runner, "vocab_size", None),
        eos_token_ids=tuple(model.eos_token_ids),
        pools=bool(getattr(model.runner, "pools", False)),
    )
    inbox = Inbox(
        entry,
        queue,
        outbox,
        accepts,
        info=lambda: _info(model, engine),
        transfers=lambda: engine.has_connector,
    )
    return engine, inbox


def _bound(folder: str) -> list[zmq.Socket[bytes]]:
    sockets: list[zmq.Socket[bytes]] = []
    for address in addresses(folder):
        sockets.append(zmq.Context.instance().socket(zmq.ROUTER))
        sockets[-1].setsockopt(zmq.MAXMSGSIZE, HARD_LIMIT_BYTES)  # too late once it is bound
        sockets[-1].bind(address)
    return sockets


def _info(model: LoadedModel, engine: EngineCoreProc) -> EngineInfo:
    config = model.config
    return EngineInfo(
        model="" if model.directory is None else str(model.directory),
        max_model_len=config.max_model_len,
        num_blocks=config.num_blocks,
        block_size=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        vocab_size=getattr(model.runner, "vocab_size", None),
        plugins=tuple(engine.plugins),
    )


def _watch_parent(queue: InputQueue, folder: str) -> None:
    """Nobody is left to serve once the parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    queue.put((NOBODY, Shutdown(drain=False)))
    shutil.rmtree(folder, ignore_errors=True)
    time.sleep(ORPHAN_S)
    os._exit(1)


# ---------------------------------------------------------------------------------------------
# in the parent
# ---------------------------------------------------------------------------------------------


def addresses(folder: str) -> tuple[str, str]:
    """Where an engine listens and where it speaks."""
    return f"ipc://{folder}/in", f"ipc://{folder}/out"


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
        self._pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)
