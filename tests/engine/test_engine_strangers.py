"""Whatever a stranger sends to an engine is refused to that stranger, and to nobody else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framework.engine.parent.remote import ProcessFront
from framework.engine.protocol import (
    MAX_MESSAGE_BYTES,
    MOST_KEYS,
    VERSION,
    Abort,
    Add,
    Goodbye,
    Hello,
    Ping,
    Pulse,
    Refused,
    Reply,
    Utility,
    encode,
)
from tests.engine.engine_peers import (
    Peer,
    call,
    folder_of,
    prompt,
    scripted,
    scripted_directory,
    tokens_of,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTILE = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
UNREADABLE = {
    "nothing": b"",
    "one byte": b"\xc1",
    "a list that never comes": b"\xdd\xff\xff\xff\xff",
    "a map that never comes": b"\xdf\xff\xff\xff\xff",
    "bytes that never come": b"\xc6\xff\xff\xff\xff",
    "no end of nesting": b"\x91" * 200_000,
    "a prompt that never comes": b"\x97\xa3add\x01\xa1x\xdd\xff\xff\xff\xff",
    "a time that is none": b"\xc7\x0c\xff" + b"\xff" * 12,
    "no UTF-8": b"\x97\xa3add\x01\xa2\xff\xfe\x91\x01\x80\x00",
    "a lone surrogate": b"\x97\xa3add\x01\xa3\xed\xa0\x80\x91\x01\x80\x00",
    "two messages": encode(Ping()) * 2,
    "a long one": b"\x00" * (MAX_MESSAGE_BYTES + 1),
}
MISTYPED = {
    "no message of the protocol": ["launch"],
    "not a list": {"type": "add"},
    "a number": 7,
    "a key that is text": ["add", "1", "x", [1], {}, 0.0],
    "a key beyond 64 bits": ["add", 2.0**80, "x", [1], {}, 0.0],
    "an id that is a number": ["add", 1, 1, [1], {}, 0.0],
    "tokens that are text": ["add", 1, "x", "abc", {}, 0.0],
    "sampling that is a list": ["add", 1, "x", [1], [], 0.0],
    "a time that is text": ["add", 1, "x", [1], {}, "now"],
    "a fractional priority": ["add", 1, "x", [1], {}, 0.0, 1.5],
    "a field too many": ["add", 1, "x", [1], {}, 0.0, 0, None, None, False, None, 0, 1],
    "too few fields": ["add", 1],
    "keys that are text": ["abort", ["x"]],
    "more keys than anybody has": ["abort", [0] * (MOST_KEYS + 1)],
}
NOT_ALLOWED = {
    "request_id: got 0 characters": {"name": ""},
    "request_id: got 10000 characters": {"name": "x" * 10_000},
    "tenant: got 10000 characters": {"tenant": "x" * 10_000},
    "prompt_token_ids: got 0 tokens": {"prompt_token_ids": []},
    "prompt_token_ids: got 1000000 tokens": {"prompt_token_ids": [1] * 1_000_000},
    "prompt_token_ids: got 258": {"prompt_token_ids": [1, 258]},
    "prompt_token_ids: got -1": {"prompt_token_ids": [-1, 1]},
    "prompt_token_ids: got 18446744073709551615": {"prompt_token_ids": [2**64 - 1]},
    "arrival_time: got nan": {"arrival_time": float("nan")},
    "arrival_time: got -1e": {"arrival_time": -1e308},
    "deadline: got inf": {"deadline": float("inf")},
    "request_wave: got -1": {"request_wave": -1},
    "request_wave: got 18446744073709551615": {"request_wave": 2**64 - 1},
    "needs_pooling": {"needs_pooling": True},
    "kv_transfer_params": {"kv_transfer_params": {"from": "there"}},
    "no such field 'max_token'. Did you mean 'max_tokens'": {"sampling": {"max_token": 1}},
    "no such field 'xxx": {"sampling": {"x" * 1_000_000: 1}},
    "stop_token_ids": {"sampling": {"stop_token_ids": "ab"}},
    "temperature": {"sampling": {"temperature": "x" * 1_000_000}},
    "top_k": {"sampling": {"top_k": -1}},
    "logprobs: got 1000000000": {"sampling": {"logprobs": 10**9}},
    "min_tokens": {"sampling": {"min_tokens": 5, "max_tokens": 4}},
}
UTILITIES = {
    "allowed: stats": ("__init__", []),
    "got 'call'": ("call", [1]),
    "got '_method'": ("_method", [1]),
    "Did you mean 'stats'": ("stat", []),
    "got 'xxx": ("x" * 1_000_000, []),
    "utility 'stats': too many": ("stats", [1]),
    "utility 'swap': missing": ("swap", []),
    "plugins: got 7": ("swap", [7]),
    "plugins: got \\['fcfs', 1\\]": ("swap", [["fcfs", 1]]),
    "no_such": ("swap", [["no_such"]]),
}
ODD = st.sampled_from([[], {}, [1, "a"], b"a", {"a": [None]}])
VALID = [
    encode(Hello(VERSION)),
    encode(Add(1, "x", [1, 2, 3], {"max_tokens": 3, "temperature": 0.0}, 1.0)),
    encode(Abort([1, 2])),
    encode(Utility(1, "stats")),
    encode(Ping()),
    encode(Goodbye()),
]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessFront]:
    built = ProcessFront(scripted(scripted_directory(tmp_path_factory.mktemp("strangers"))))
    yield built
    built.close()


@pytest.fixture
def peer(front: ProcessFront) -> Iterator[Peer]:
    built = Peer(folder_of(front.engine))
    built.greet()
    yield built
    built.close()


@pytest.fixture
def harmed(front: ProcessFront) -> Iterator[None]:
    """A well-behaved stream runs through each test, and gives what it gives when alone."""
    stream = call(front, front.engine.submit(prompt(300, "through")))
    yield
    completion = call(front, stream.finish())
    assert (completion.finish_reason, completion.token_ids) == ("length", tokens_of("through", 300))
    assert front.engine.is_alive


pytestmark = pytest.mark.usefixtures("harmed")


@pytest.mark.parametrize("frame", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_refused(peer: Peer, frame: bytes) -> None:
    peer.send(frame)
    assert peer.hear(Refused).error.startswith("message: ")


@pytest.mark.parametrize("message", MISTYPED.values(), ids=MISTYPED.keys())
def test_what_is_of_another_type_is_refused(peer: Peer, message: Any) -> None:
    peer.say(message)
    assert peer.hear(Refused).error.startswith("message: ")


def test_messages_of_several_frames_are_refused(peer: Peer) -> None:
    peer.send(encode(Ping()), b"")
    assert "got 2 frames" in peer.hear(Refused).error


def test_nothing_is_heard_before_hello(front: ProcessFront, peer: Peer) -> None:
    stranger = Peer(folder_of(front.engine))
    within(5, lambda: stranger.say(Ping()) or stranger._sockets[1].poll(50))
    assert "Hello first" in stranger.hear(Refused).error
    stranger.close()


def test_another_version_is_refused(peer: Peer) -> None:
    peer.say(Hello(VERSION + 1))
    assert f"allowed: {VERSION}" in peer.hear(Refused).error


@pytest.mark.parametrize("why", NOT_ALLOWED)
def test_a_request_that_is_not_allowed_ends_with_a_sentence(peer: Peer, why: str) -> None:
    fields = dict(NOT_ALLOWED[why])
    peer.add(3, fields.pop("name", "x"), **fields)
    tokens, reason, error = peer.hear_end(3)
    assert (tokens, reason) == ([], "rejected")
    assert why in error
    assert len(error) < 5000


@pytest.mark.parametrize("number", [-(2**63), 2**64 - 1])
def test_any_number_of_64_bits_is_a_priority_and_a_key(peer: Peer, number: int) -> None:
    peer.add(number, "x", priority=number, deadline=1e308)
    assert peer.hear_end(number)[1] == "length"


@pytest.mark.parametrize("why", UTILITIES)
def test_a_call_that_is_none_gets_its_own_error(peer: Peer, why: str) -> None:
    name, arguments = UTILITIES[why]
    peer.say(Utility(5, name, arguments))
    reply = peer.hear(Reply)
    assert reply.call == 5
    assert reply.kind in ("ConfigError", "PluginError")
    assert re.search(why, reply.error)


def test_a_key_in_use_is_refused_and_its_request_goes_on(peer: Peer) -> None:
    peer.add(1, "one", sampling={"max_tokens": 2000})
    peer.add(1, "two")
    assert "key: 1 is in use" in peer.hear(Refused).error
    assert peer.hear_end(1)[1] == "length"
    peer.add(1, "three")
    assert peer.hear_end(1)[1] == "length"


@HOSTILE
@given(frame=st.binary(max_size=200))
def test_noise_harms_nobody(peer: Peer, frame: bytes) -> None:
    peer.send(frame)
    assert peer.greet().version == VERSION


@HOSTILE
@given(
    frame=st.sampled_from(VALID),
    at=st.integers(0, 60),
    removed=st.integers(0, 4),
    put=st.binary(max_size=6),
)
def test_mutations_of_messages_harm_nobody(
    peer: Peer, frame: bytes, at: int, removed: int, put: bytes
) -> None:
    peer.send(frame[:at] + put + frame[at + removed :])
    assert peer.greet().version == VERSION


@HOSTILE
@given(
    fields=st.dictionaries(
        st.sampled_from(["max_tokens", "temperature", "stop", "seed", "logprobs", "top_p"]),
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 9)
        | st.floats()
        | st.text()
        | st.just([]),
    )
)
def test_any_sampling_is_answered_or_rejected(peer: Peer, fields: dict[str, Any]) -> None:
    peer.add(1, "x", sampling={**fields, "min_tokens": 0})
    peer.say(Abort([1]))
    assert peer.hear_end(1)[1] in ("rejected", "abort", "length")


def test_a_flood_is_answered_in_order(peer: Peer) -> None:
    for number in range(20_000):
        peer.say(Utility(number, "stat"))
    calls = [peer.hear(Reply).call for _ in range(20_000)]
    assert calls == list(range(20_000))


def test_a_wave_that_a_front_knows_is_told_to_others(peer: Peer) -> None:
    peer.add(1, "x", request_wave=1000)
    peer.hear_end(1)
    assert within(5, lambda: peer.hear(Pulse).wave >= 1000)
