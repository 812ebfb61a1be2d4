"""An urgent request does not wait behind lesser ones for a slot; nobody else is disturbed."""

from __future__ import annotations

from framework import Request
from tests.support import DISPLACING, PRIORITY, Bench, bench


def two_running(stack: tuple[str, ...], max_num_seqs: int = 2) -> tuple[Bench, Request, Request]:
    """a and b (priority 5) hold both slots."""
    b = bench(stack, blocks=20, budget=64, max_num_seqs=max_num_seqs)
    requests = [b.add(name, 8, 30, priority=5, arrival_time=at) for at, name in enumerate("ab")]
    b.step()
    return b, requests[0], requests[1]


def test_an_urgent_arrival_is_in_the_next_plan_and_soon_done() -> None:
    b, _, victim = two_running(DISPLACING)
    urgent = b.add("hi", 8, 2, priority=0, arrival_time=9)
    assert b.step() == {"a": 1, "hi": 8}
    assert b.preempted == ["b"]
    b.step()
    assert urgent.is_finished
    assert len(b.results) - 1 <= 3
    b.finish()
    assert victim.num_output_tokens == 30
    assert b.preempted == ["b"]


def test_the_victim_is_the_later_one_of_equals_in_order_of_admission_too() -> None:
    """Same arrival stamp: the one admitted later gives way."""
    b = bench(DISPLACING, blocks=20, budget=64, max_num_seqs=2)
    for name in "ab":
        b.add(name, 8, 30, priority=5)
    b.step()
    b.add("hi", 8, 2, priority=0)
    b.step()
    assert b.preempted == ["b"]
    b.finish()


def test_the_least_urgent_one_gives_way() -> None:
    b = bench(DISPLACING, blocks=20, budget=64, max_num_seqs=2)
    b.add("low", 8, 30, priority=7)
    b.add("mid", 8, 30, priority=5, arrival_time=1)
    b.step()
    b.add("hi", 8, 2, priority=0, arrival_time=2)
    b.step()
    assert b.preempted == ["low"]
    b.finish()


def test_two_urgent_arrivals_displace_two_and_no_more() -> None:
    b, _, _ = two_running(DISPLACING)
    for name in ("hi1", "hi2", "hi3"):
        b.add(name, 8, 2, priority=0)
    assert b.step() == {"hi1": 8, "hi2": 8}
    assert sorted(b.preempted) == ["a", "b"]
    b.finish()
    assert sorted(b.preempted) == ["a", "b"]


def test_equal_priority_never_displaces() -> None:
    b, _, _ = two_running(DISPLACING)
    b.add("c", 8, 2, priority=5, arrival_time=2)
    b.finish()
    assert b.preempted == []


def test_a_less_urgent_request_never_displaces() -> None:
    b, _, _ = two_running(DISPLACING)
    b.add("c", 8, 2, priority=6, arrival_time=0)
    b.finish()
    assert b.preempted == []


def test_a_free_slot_is_used_before_anybody_is_displaced() -> None:
    b, _, _ = two_running(DISPLACING, max_num_seqs=3)
    b.add("hi", 8, 2, priority=0)
    assert b.step() == {"a": 1, "b": 1, "hi": 8}
    b.finish()
    assert b.preempted == []


def test_for_blocks_just_enough_are_displaced() -> None:
    """Three lesser ones hold three blocks each; the urgent one lacks two."""
    b = bench(DISPLACING, blocks=10, budget=64, max_num_seqs=8)
    for at, name in enumerate("abc"):
        b.add(name, 9, 4, priority=5, arrival_time=at)
    b.step()
    b.add("hi", 11, 2, priority=0)
    assert b.step() == {"a": 1, "b": 1, "hi": 11}
    assert b.preempted == ["c"]
    b.finish()


def test_nobody_is_displaced_for_blocks_that_would_not_suffice() -> None:
    """The urgent one needs six blocks; the one lesser request holds three, three are free."""
    b = bench(DISPLACING, blocks=9, budget=64, max_num_seqs=8)
    b.add("vip", 13, 4, priority=0)
    b.add("low", 7, 4, priority=5)
    b.step()
    b.add("hi", 23, 2, priority=1)
    b.step()
    assert b.preempted == []
    b.finish()
    assert b.preempted == []


def test_without_the_option_the_urgent_one_waits_for_a_slot() -> None:
    """A documented property of the priority policy, as in vLLM V1: it preempts for memory only."""
    b, _, _ = two_running(PRIORITY)
    urgent = b.add("hi", 8, 2, priority=0, arrival_time=9)
    while urgent.num_output_tokens == 0:
        b.step()
    assert b.first_token_step("hi") == 30
    assert b.preempted == []
    b.finish()
