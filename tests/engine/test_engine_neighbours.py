"""Peers of one engine: what one does, or leaves undone, is nothing to the others."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from framework.engine.child.sending import MOST_BYTES_BEHIND, Backlog
from framework.engine.parent.remote import ProcessFront
from framework.engine.protocol import (
    HARD_LIMIT_BYTES,
    VERSION,
    Abort,
    Goodbye,
    Hello,
    Outputs,
    Ping,
    Refused,
)
from tests.engine.engine_peers import (
    Peer,
    answer,
    call,
    folder_of,
    is_quiet,
    num_aborted,
    prompt,
    scripted,
    scripted_directory,
    tokens_of,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG = {"max_tokens": 900_000}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessFront]:
    built = ProcessFront(scripted(scripted_directory(tmp_path_factory.mktemp("neighbours"))))
    yield built
    built.close()


@pytest.fixture
def new_peer(front: ProcessFront) -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def build(**options: int) -> Peer:
        peers.append(Peer(folder_of(front.engine), **options))
        peers[-1].greet()
        return peers[-1]

    yield build
    for one in peers:
        one.close()
    within(10, lambda: is_quiet(front))


@pytest.fixture(scope="module")
def stuck(front: ProcessFront) -> Iterator[tuple[Peer, int]]:
    """A peer that asks for much and reads nothing, and how many requests were aborted before."""
    peer = Peer(folder_of(front.engine), receive_limit=1)
    peer.greet()
    before = num_aborted(front)
    peer.add(1, "stuck", sampling=LONG)
    yield peer, before
    peer.close()


def resident_bytes(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * 4096


def test_a_peer_that_vanishes_leaves_nothing(
    front: ProcessFront, new_peer: Callable[..., Peer]
) -> None:
    before, peer = num_aborted(front), new_peer()
    peer.add(1, "x", sampling=LONG)
    peer.hear(Outputs)
    peer.close()
    within(5, lambda: num_aborted(front) == before + 1)


def test_a_paused_engine_hears_of_a_peer_that_vanished(
    front: ProcessFront, new_peer: Callable[..., Peer]
) -> None:
    before, peer = num_aborted(front), new_peer()
    call(front, front.engine.pause())
    peer.add(1, "x", sampling=LONG)
    within(5, lambda: call(front, front.engine.stats()).num_waiting == 1)
    peer.close()
    within(5, lambda: num_aborted(front) == before + 1)
    call(front, front.engine.resume())


def test_a_flood_of_requests_leaves_with_its_peer(
    front: ProcessFront, new_peer: Callable[..., Peer]
) -> None:
    before, peer = num_aborted(front), new_peer()
    for key in range(20_000):
        peer.add(key, f"flood {key}", sampling={"max_tokens": 1000})
    within(10, lambda: call(front, front.engine.stats()).num_waiting > 10_000)
    peer.close()
    began = time.monotonic()
    assert answer(front, 5, "other").token_ids == tokens_of("other", 5)
    assert time.monotonic() - began < 10
    assert num_aborted(front) > before + 10_000


def test_goodbye_aborts_what_is_left(front: ProcessFront, new_peer: Callable[..., Peer]) -> None:
    before, peer = num_aborted(front), new_peer()
    peer.add(1, "x", sampling=LONG)
    peer.say(Goodbye())
    peer.add(2, "y")
    assert "Hello first" in peer.hear(Refused).error
    within(5, lambda: num_aborted(front) == before + 1)


def test_a_peer_that_cannot_hear_is_not_served(front: ProcessFront) -> None:
    with closing(Peer(folder_of(front.engine), hears=False)) as deaf:
        for key in range(20):
            deaf.say(Hello(VERSION))
            deaf.add(key, f"deaf {key}", sampling={"max_tokens": 20_000})
        assert answer(front, 5, "other").finish_reason == "length"
        within(10, lambda: is_quiet(front))
        assert call(front, front.engine.stats()).counters["num_sampled_tokens"] < 200_000


def test_a_stuck_reader_slows_nobody_and_is_given_up(
    front: ProcessFront, stuck: tuple[Peer, int]
) -> None:
    num_bytes, num_done, began = resident_bytes(front.engine.pid), 0, time.monotonic()
    while num_aborted(front) == stuck[1]:
        assert answer(front, 200, "other").token_ids == tokens_of("other", 200)
        num_done += 1
        assert time.monotonic() - began < 60
    assert num_done / (time.monotonic() - began) > 3
    assert resident_bytes(front.engine.pid) - num_bytes < 64 << 20


def test_a_peer_that_was_given_up_hears_nothing_after_the_gap(
    front: ProcessFront, stuck: tuple[Peer, int]
) -> None:
    late, before = stuck
    within(60, lambda: num_aborted(front) > before)
    heard = [one for one in late.read_all() if isinstance(one, Outputs)]
    tokens = [token for one in heard for token_ids in one.token_ids for token in token_ids]
    assert tuple(tokens) == tokens_of("stuck", len(tokens))
    late.say(Ping())
    assert "Hello first" in late.hear(Refused).error


def test_what_waits_for_a_peer_is_bounded_in_bytes_too() -> None:
    backlog = Backlog()
    backlog.append(bytes(MOST_BYTES_BEHIND))
    assert not backlog.is_too_long
    backlog.append(b"x")
    assert backlog.is_too_long
    backlog.drop_first()
    assert backlog.num_bytes == 1


def test_an_enormous_message_is_not_even_read(
    front: ProcessFront, new_peer: Callable[..., Peer]
) -> None:
    num_bytes, peer = resident_bytes(front.engine.pid), new_peer()
    peer.send(bytes(HARD_LIMIT_BYTES + 1))
    time.sleep(0.5)
    assert answer(front, 50, "after").token_ids == tokens_of("after", 50)
    assert not any(isinstance(one, Refused) for one in peer.read_all())
    assert resident_bytes(front.engine.pid) - num_bytes < 64 << 20


def test_an_id_in_use_by_another_peer_is_refused(
    front: ProcessFront, new_peer: Callable[..., Peer]
) -> None:
    first, second = new_peer(), new_peer()
    first.add(1, "same", sampling={"max_tokens": 3000})
    first.hear(Outputs)
    second.add(1, "same")
    tokens, reason, error = second.hear_end(1)
    assert (tokens, reason) == ([], "rejected")
    assert "'same' is in use by an unfinished request" in error
    assert first.hear_end(1)[1:] == ("length", None)
    second.add(1, "same")
    assert second.hear_end(1) == (list(tokens_of("same", 5)), "length", None)


def test_an_abort_touches_only_requests_of_its_peer(
    front: ProcessFront, new_peer: Callable[..., Peer]
) -> None:
    first, second = new_peer(), new_peer()
    first.add(7, "first", sampling={"max_tokens": 2000})
    second.add(7, "second", sampling=LONG)
    second.hear(Outputs)
    second.say(Abort([7, 7, 8]))
    assert second.hear_end(7)[1] == "abort"
    assert first.hear_end(7)[1] == "length"


def test_an_id_given_back_by_an_abort_is_free_at_once(new_peer: Callable[..., Peer]) -> None:
    peer = new_peer()
    for key in range(2, 40, 2):
        peer.add(key, "again", sampling=LONG)
        if key % 4:
            peer.hear(Outputs)
        peer.say(Abort([key]))
        peer.add(key + 1, "again")
        assert peer.hear_end(key + 1) == (list(tokens_of("again", 5)), "length", None)


def test_a_name_of_one_front_is_refused_before_it_is_sent(front: ProcessFront) -> None:
    stream = call(front, front.engine.submit(prompt(900_000, "mine")))
    with pytest.raises(ValueError, match="request_id: 'mine' is in use"):
        answer(front, 5, "mine")
    assert call(front, front.engine.abort("mine"))
    assert answer(front, 5, "mine").token_ids == tokens_of("mine", 5)
    assert call(front, stream.finish()).finish_reason == "abort"
