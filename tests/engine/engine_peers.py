"""An engine's process for tests: a model directory without weights, and strangers at its door."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4
from zlib import crc32

import msgspec
import zmq
from attrs import define, field

from framework.engine.prompts import Prompt
from framework.engine.protocol import (
    VERSION,
    Add,
    Hello,
    Outputs,
    Ready,
    addresses,
    decode_from_engine,
    encode,
)
from framework.engine.settings import EngineSettings
from framework.sampling import SamplingParams
from tests.conftest import save_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from framework.engine.client import AsyncEngine
    from framework.engine.completion import Completion
    from framework.engine.parent.remote import ProcessFront
    from framework.engine.protocol import FromEngine

VOCABULARY = 258
PATIENCE_S = 10.0
T = TypeVar("T")


def scripted_directory(parent: Path) -> Path:
    """All that the scripted runner reads of a model: its vocabulary, length and tokenizer."""
    directory = parent / "scripted"
    save_tokenizer(directory)
    shape = {"vocab_size": VOCABULARY, "max_position_embeddings": 1_000_000}
    (directory / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    return directory


def scripted(directory: Path, **settings: Any) -> EngineSettings:
    """Settings of an engine that draws tokens by a hash of the request's name."""
    pool = {"num_blocks": 70_000, "max_num_seqs": 128, "runner": "scripted"}
    return EngineSettings(model=directory, **{**pool, **settings})


def prompt(num_tokens: int, name: str | None = None, **more: Any) -> Prompt:
    """A prompt that gets so many tokens."""
    params = SamplingParams(max_tokens=num_tokens, stop=more.pop("stop", ()))
    return Prompt(prompt="some words", request_id=name, sampling_params=params, **more)


def tokens_of(name: str, num_tokens: int) -> tuple[int, ...]:
    """What the scripted runner answers to a request of that name."""
    return tuple(crc32(f"0/{name}/{at}".encode()) % VOCABULARY for at in range(num_tokens))


def within(seconds: float, happens: Callable[[], Any]) -> Any:
    """What `happens` gives, as soon as that is true."""
    patience = time.monotonic() + seconds
    while not (found := happens()):
        assert time.monotonic() < patience, f"it did not happen within {seconds} s"
        time.sleep(0.02)
    return found


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def folder_of(engine: AsyncEngine) -> Path:
    """Where its sockets are."""
    return Path(engine._link._process.folder)


def call(front: ProcessFront, work: Coroutine[Any, Any, T]) -> T:
    """Something asynchronous of a front's engine, waited for."""
    return front._call(work)


def answer(front: ProcessFront, num_tokens: int, name: str, **more: Any) -> Completion:
    """One request, waited for."""
    return front.answer([prompt(num_tokens, name, **more)])[0]


def is_quiet(front: ProcessFront) -> bool:
    """Whether nobody runs or waits and every block is free."""
    stats = call(front, front.engine.stats())
    num_free = stats.num_free_blocks
    return not stats.num_running + stats.num_waiting and num_free == stats.num_total_blocks


def num_aborted(front: ProcessFront) -> int:
    """Requests that were aborted since its start."""
    found: int = call(front, front.engine.stats()).counters["finished"].get("aborted", 0)
    return found


@define(eq=False)
class Peer:
    """A front that is not ours: it sends whatever it likes, from raw sockets."""

    folder: Path
    hears: bool = True
    receive_limit: int = 1000
    identity: bytes = field(factory=lambda: uuid4().bytes)
    _sockets: list[zmq.Socket[bytes]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        for address in addresses(str(self.folder))[: 1 + self.hears]:
            socket = zmq.Context.instance().socket(zmq.DEALER)
            socket.setsockopt(zmq.IDENTITY, self.identity)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.RCVHWM, self.receive_limit)
            socket.connect(address)
            self._sockets.append(socket)

    def send(self, *frames: Any) -> None:
        """Send one message, as it is."""
        self._sockets[0].send_multipart(frames)

    def say(self, message: Any) -> None:
        """Send a message of the protocol, or something like one."""
        self.send(msgspec.msgpack.encode(message))

    def add(self, key: int, name: str, **fields: Any) -> None:
        """Send a request of 5 tokens, or a likeness of one."""
        usual = {"prompt_token_ids": [1], "sampling": {"max_tokens": 5}, "arrival_time": 0.0}
        self.send(encode(Add(key, name, **{**usual, **fields})))

    def hear(self, kind: type[T], timeout_s: float = PATIENCE_S) -> T:
        """The next message of a kind; others are passed over."""
        patience = time.monotonic() + timeout_s
        while self._sockets[1].poll(max(0, int(1000 * (patience - time.monotonic())))):
            message = decode_from_engine(self._sockets[1].recv())
            if isinstance(message, kind):
                return message
        raise AssertionError(f"no {kind.__name__} within {timeout_s} s")

    def hear_end(self, key: int) -> tuple[list[int], str, str | None]:
        """Tokens, finish reason and error of a request."""
        tokens: list[int] = []
        while True:
            outputs = self.hear(Outputs)
            for one, token_ids in zip(outputs.keys, outputs.token_ids, strict=True):
                tokens += token_ids if one == key else []
            for ended in outputs.ended:
                if ended.key == key:
                    return tokens, ended.reason, ended.error

    def read_all(self) -> list[FromEngine]:
        """Everything that has come, until nothing does for a moment."""
        found: list[FromEngine] = []
        while self._sockets[1].poll(300):
            found.append(decode_from_engine(self._sockets[1].recv()))
        return found

    def greet(self) -> FromEngine:
        """Say hello until there is an answer that is not of an earlier hello."""
        for _ in range(50):
            self.say(Hello(VERSION))
            if self._sockets[1].poll(100):
                return self.hear(Ready)
        raise AssertionError("no answer to hello")

    def close(self) -> None:
        """Vanish."""
        for socket in self._sockets:
            socket.close(linger=0)


def kill(pid: int, number: int) -> None:
    """Send a signal."""
    os.kill(pid, number)
