"""What runs in an engine's process: open the model, bind two sockets, serve, end with the parent.

It is spawned by `launching.EngineProcess`, which hears over a pipe that it is ready, or why not.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import zmq

from framework.engine.child.incoming import Accepts
from framework.engine.child.receiving import Inbox, PeerLost
from framework.engine.child.sending import Outbox
from framework.engine.core import EngineCore
from framework.engine.process import EngineCoreProc
from framework.engine.protocol import HARD_LIMIT_BYTES, EngineInfo, Shutdown, addresses
from framework.errors import EngineDeadError, HeadwayError
from framework.metrics import Recorder
from framework.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from framework.engine.child.receiving import InputQueue
    from framework.engine.models import LoadedModel
    from framework.engine.settings import EngineSettings
    from framework.loading import Spec

NOBODY: Final = b""
ORPHAN_S: Final = 5.0
"""How long an engine whose parent is gone may take to end by itself."""
SWITCH_S: Final = 0.0005
"""Threads of the engine take turns so often: the default of 5 ms would hold back each output."""
log = logging.getLogger("headway.process")


def run_engine(settings: EngineSettings, folder: str, pipe: Connection, verbosity: int) -> None:
    """The whole life of an engine's process."""
    logging.basicConfig(level=verbosity, format="%(asctime)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    queue: InputQueue = SimpleQueue()
    serves = Event()
    Thread(target=_watch_parent, args=(queue, folder, serves), daemon=True).start()
    try:
        model, stack = settings.open()
        engine, inbox = build_engine(model, stack, folder, queue)
    except HeadwayError as error:
        return _tell(pipe, type(error).__name__, str(error))
    except BaseException as error:
        why = f"the engine process could not start: {type(error).__name__}: {error}"
        _tell(pipe, EngineDeadError.__name__, why)
        raise
    _end_on_sigterm(queue)
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)
    inbox.start()
    engine.outbox.start()
    config = model.config
    log.info(
        "serving with %s; %d KV blocks of %d tokens, at most %d running requests, "
        "%d tokens a step, %d tokens a request",
        *("+".join(engine.plugins), config.num_blocks, config.block_size, config.max_num_seqs),
        *(config.max_num_batched_tokens, config.max_model_len),
    )
    serves.set()
    _tell(pipe, "ready", "")
    try:
        engine.run_busy_loop()
    finally:
        inbox.close()
        engine.outbox.close()
        engine.core.close()
        model.runner.close()
        shutil.rmtree(folder, ignore_errors=True)  # a parent that just ends leaves it


def _end_on_sigterm(queue: InputQueue) -> None:
    """The first one drains, as for a server that is told to end with all its processes at once; the
    second one aborts."""
    drains = iter((True,))

    def end(*_: object) -> None:
        queue.put((NOBODY, Shutdown(drain=next(drains, False))))

    signal.signal(signal.SIGTERM, end)


def _tell(pipe: Connection, kind: str, sentence: str) -> None:
    with suppress(BrokenPipeError):  # nobody waits any more
        pipe.send((kind, sentence))


def build_engine(
    model: LoadedModel, stack: Sequence[Spec], folder: str, queue: InputQueue
) -> tuple[EngineCoreProc, Inbox]:
    """An engine over a loaded model, with bound sockets and threads that have not started."""
    recorder = Recorder()
    core = EngineCore(Scheduler(model.config, [*stack, recorder], timed=True), model.runner)
    entry, way_out = _bound(folder)
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


def _watch_parent(queue: InputQueue, folder: str, serves: Event) -> None:
    """Nobody is left to serve once the parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    queue.put((NOBODY, Shutdown(drain=False)))
    shutil.rmtree(folder, ignore_errors=True)
    if serves.is_set():
        time.sleep(ORPHAN_S)
    os._exit(1)
