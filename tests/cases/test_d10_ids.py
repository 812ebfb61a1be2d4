"""Ids: taken ones are refused, aborts never raise, and each request ends once."""

from __future__ import annotations

from collections import Counter

import pytest

from framework import RequestError, Status
from tests.support import Bench, bench, prompt


def ends(b: Bench) -> Counter[tuple[str, str]]:
    """(id, how) of every end in the event log."""
    events = b.scheduler.events
    return Counter((event.request_id, event.detail) for event in events if event.kind == "finished")


def test_an_id_in_use_is_refused_and_the_first_request_is_unharmed() -> None:
    b = bench()
    first = b.add("x", 9, 3)
    b.step()
    with pytest.raises(RequestError, match="'x' is in use by an unfinished request"):
        b.add("x", 20, 5)
    b.finish()
    assert first.num_output_tokens == 3
    assert ends(b) == {("x", "length"): 1}


def test_an_id_waiting_is_in_use_too() -> None:
    b = bench()
    b.add("x", 9, 3)
    with pytest.raises(RequestError, match="in use"):
        b.add("x", 9, 3)
    b.finish()


def test_an_id_is_free_again_after_its_end() -> None:
    b = bench()
    for _ in range(2):
        again = b.add("x", prompt(9), 3)
        b.finish()
        assert again.num_output_tokens == 3
    assert ends(b) == {("x", "length"): 2}


def test_one_request_object_cannot_be_added_twice() -> None:
    b = bench()
    done = b.add("x", 9, 3)
    b.finish()
    with pytest.raises(RequestError, match="was added before"):
        b.scheduler.add_request(done)
    b.invariants.at_idle()


@pytest.mark.parametrize("steps_before", [0, 1, 2])
def test_an_id_that_was_aborted_can_come_again_in_the_same_step(steps_before: int) -> None:
    b = bench()
    old = b.add("x", 9, 5)
    b.steps(steps_before)
    assert b.abort("x")
    new = b.add("x", 6, 3)
    output = b.schedule()
    assert output.finished_req_ids == ("x",)
    assert [data.request_id for data in output.scheduled_new_reqs] == ["x"]
    assert output.scheduled_new_reqs[0].prompt_token_ids == new.prompt_token_ids
    b.update(output)
    b.finish()
    assert old.status is Status.FINISHED_ABORTED
    assert old.num_output_tokens == steps_before
    assert new.num_output_tokens == 3
    assert ends(b) == {("x", "aborted"): 1, ("x", "length"): 1}


def test_an_id_that_comes_again_while_its_step_is_in_flight_gets_none_of_its_tokens() -> None:
    b = bench()
    old = b.add("x", 9, 5)
    output = b.schedule()
    b.abort("x")
    new = b.add("x", 9, 2)
    result = b.update(output)
    assert result.req_ids == []
    assert old.num_output_tokens == new.num_output_tokens == 0
    b.finish()
    assert new.num_output_tokens == 2


def test_an_unknown_id_is_ignored() -> None:
    b = bench()
    b.add("x", 9, 2)
    assert not b.abort("ghost")
    b.finish()
    assert not b.abort("x")
    assert ends(b) == {("x", "length"): 1}


def test_a_second_abort_does_nothing() -> None:
    b = bench()
    b.add("x", 9, 2)
    b.step()
    assert b.abort("x")
    assert not b.abort("x")
    b.finish()
    assert ends(b) == {("x", "aborted"): 1}


def test_an_abort_before_the_first_step_leaves_nothing_to_run() -> None:
    b = bench()
    b.add("x", 9, 2)
    assert b.abort("x")
    assert not b.scheduler.has_unfinished_requests()
    b.finish()
    assert all(not output.num_scheduled_tokens for output in b.outputs)
    assert ends(b) == {("x", "aborted"): 1}


@pytest.mark.parametrize("max_tokens", [1, 5])
def test_an_abort_while_its_step_is_in_flight_drops_the_result(max_tokens: int) -> None:
    """With one token allowed the same result would have ended it by length."""
    b = bench()
    gone, other = b.add("x", 9, max_tokens), b.add("y", 9, 3)
    output = b.schedule()
    assert b.abort("x")
    assert b.scheduler.kv is not None
    assert b.scheduler.kv.block_ids(gone) == []
    result = b.update(output)
    assert result.req_ids == ["y"]
    assert result.finish_reasons == {}
    b.finish()
    assert gone.num_output_tokens == 0
    assert other.num_output_tokens == 3
    assert ends(b) == {("x", "aborted"): 1, ("y", "length"): 1}


def test_an_abort_after_the_end_in_the_same_step_changes_nothing() -> None:
    b = bench()
    request = b.add("x", 9, 1)
    b.step()
    assert request.status is Status.FINISHED_LENGTH_CAPPED
    assert not b.abort("x")
    assert request.status is Status.FINISHED_LENGTH_CAPPED
    b.finish()
    assert ends(b) == {("x", "length"): 1}


def test_an_abort_in_a_chunk_gives_the_blocks_back() -> None:
    b = bench(budget=8)
    b.add("x", 30, 2)
    b.steps(2)
    assert b.abort("x")
    b.finish()
    assert ends(b) == {("x", "aborted"): 1}


def test_an_abort_of_a_preempted_request_ends_it_once() -> None:
    b = bench(("kv_blocks", "chunked_prefill", "priority"), blocks=5)
    b.add("low", 8, 6, priority=5)
    b.add("high", 8, 6, priority=0)
    while not b.preempted:
        b.step()
    assert b.preempted == ["low"]
    assert b.abort("low")
    b.finish()
    assert ends(b) == {("low", "aborted"): 1, ("high", "length"): 1}
