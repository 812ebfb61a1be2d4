"""Messages between fronts and an engine in a process of its own: msgpack, typed, versioned.

A front speaks from two DEALER sockets with one identity: one to send, one to hear. It says
`Hello`, until `Ready` comes; then it sends `Add`, `Abort`, `Utility` and `Ping`. The engine
answers each with what belongs to it, and with `Refused` what it cannot understand.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from framework.errors import HeadwayError

VERSION: Final = 1
MAX_MESSAGE_BYTES: Final = 16 << 20
"""Longest message that an engine reads; a prompt of a million tokens takes 5 MB."""
HARD_LIMIT_BYTES: Final = 16 * MAX_MESSAGE_BYTES
"""A peer that announces more is cut off unread."""
MOST_KEYS: Final = 100_000
"""Requests that one message may abort."""
LONGEST_SENTENCE: Final = 2000
"""Characters of an error; it may quote what a stranger sent, or what a plugin raised."""


class ProtocolError(HeadwayError):
    """A message cannot be understood."""


def sentence(text: str) -> str:
    """An error as it can be sent: not endless, and valid Unicode whatever it quotes."""
    if len(text) > LONGEST_SENTENCE:
        text = f"{text[:LONGEST_SENTENCE]}... ({len(text)} characters)"
    return text.encode("utf-8", "backslashreplace").decode()


class Message(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Base of all messages."""


# ---------------------------------------------------------------------------------------------
# from a front
# ---------------------------------------------------------------------------------------------


class Hello(Message, tag="hello"):
    """First of all messages; the engine serves only fronts of its own version."""

    version: int


class Add(Message, tag="add"):
    """A request. `key` is the front's own number for it and never used again.

    `sampling` holds the fields of SamplingParams that are not the default, without `stop`.
    `arrival_time` and `deadline` are seconds on the machine's monotonic clock. `kv_transfer_params`
    goes to an owner of external KV. `request_wave` is the wave that the front knows.
    """

    key: int
    request_id: str
    prompt_token_ids: list[int]
    sampling: dict[str, Any]
    arrival_time: float
    priority: int = 0
    tenant: str | None = None
    deadline: float | None = None
    needs_pooling: bool = False
    kv_transfer_params: dict[str, Any] | None = None
    request_wave: int = 0


class Abort(Message, tag="abort"):
    """End requests now; unknown and ended keys are ignored."""

    keys: Annotated[list[int], msgspec.Meta(max_length=MOST_KEYS)]


class Utility(Message, tag="utility"):
    """A call by name, answered with a `Reply` of the same number."""

    call: int
    name: str
    arguments: list[Any] = []


class Ping(Message, tag="ping"):
    """The front lives."""


class Goodbye(Message, tag="goodbye"):
    """The front leaves; its requests are aborted."""


class Shutdown(Message, tag="shutdown"):
    """End the engine: after the requests that it has, or at once."""

    drain: bool


FromFront: TypeAlias = Hello | Add | Abort | Utility | Ping | Goodbye | Shutdown


# ---------------------------------------------------------------------------------------------
# from the engine
# ---------------------------------------------------------------------------------------------


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine serves.

    Attributes:
        model: its directory, or "".
        max_model_len: most tokens of a request.
        num_blocks, block_size: the KV pool.
        max_num_seqs, max_num_batched_tokens: most running requests, tokens of a step.
        vocab_size: tokens that the model knows, or None.
        plugins: names of the stack.
    """

    model: str
    max_model_len: int
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    vocab_size: int | None
    plugins: tuple[str, ...]


class Ready(Message, tag="ready"):
    """Answer to `Hello`."""

    version: int
    info: EngineInfo
    wave: int


class Logprobs(msgspec.Struct, array_like=True):
    """`TokenLogprobs` of one token."""

    logprob: float
    rank: int
    top: dict[int, float]


class Admitted(msgspec.Struct, array_like=True):
    """When a request got its first place, and what it found in the cache; told once."""

    key: int
    first_admission: float
    num_cached_tokens: int


class Ended(msgspec.Struct, array_like=True):
    """The end of a request, with what only the engine knows of it."""

    key: int
    reason: str
    stop_reason: int | str | None = None
    error: str | None = None
    first_admission: float | None = None
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    preempted_s: float = 0.0

    def __post_init__(self) -> None:
        if self.error is not None:
            self.error = sentence(self.error)


class Outputs(Message, tag="outputs"):
    """What one step gave: one list of tokens a key, who gives its first, and who ended."""

    keys: list[int]
    token_ids: list[list[int]]
    ended: list[Ended] = []
    logprobs: dict[int, list[Logprobs]] = {}
    admitted: list[Admitted] = []


class Reply(Message, tag="reply"):
    """The value of a `Utility`, or why there is none and the name of the error's class."""

    call: int
    value: Any = None
    error: str | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        if self.error is not None:
            self.error = sentence(self.error)


class Refused(Message, tag="refused"):
    """The engine could not understand what this front sent; nothing was changed."""

    error: str

    def __post_init__(self) -> None:
        self.error = sentence(self.error)


class Pulse(Message, tag="pulse"):
    """The engine lives. `wave` is the number of its current wave of requests."""

    wave: int


class Stopped(Message, tag="stopped"):
    """The engine ends; nothing follows. `failed` says whether it had to."""

    reason: str
    failed: bool

    def __post_init__(self) -> None:
        self.reason = sentence(self.reason)


FromEngine: TypeAlias = Ready | Outputs | Reply | Refused | Pulse | Stopped


def addresses(folder: str) -> tuple[str, str]:
    """Where an engine listens and where it speaks."""
    return f"ipc://{folder}/in", f"ipc://{folder}/out"


_encoder = msgspec.msgpack.Encoder()
_from_front = msgspec.msgpack.Decoder(FromFront)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode(message: FromFront | FromEngine) -> bytes:
    """One message as one frame.

    Raises:
        ProtocolError: it holds something that msgpack cannot carry.
    """
    try:
        return _encoder.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"{type(message).__name__}: cannot be sent: {error}") from error


def decode_from_front(frame: bytes) -> FromFront:
    """One frame of a front.

    Raises:
        ProtocolError: it is too long, no msgpack, or no message of this protocol.
    """
    if len(frame) > MAX_MESSAGE_BYTES:
        raise ProtocolError(
            f"message: got {len(frame)} bytes, allowed: at most {MAX_MESSAGE_BYTES}"
        )
    try:
        return _from_front.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"message: cannot be read: {error or type(error).__name__}") from error


def decode_from_engine(frame: bytes) -> FromEngine:
    """One frame of an engine.

    Raises:
        ProtocolError: it is no message of this protocol.
    """
    try:
        return _from_engine.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"message of the engine: cannot be read: {error}") from error
