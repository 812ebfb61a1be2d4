"""Equal priority and equal arrival: requests are never compared, and the order is one."""

from __future__ import annotations

from random import Random

import pytest

from tests.support import DISPLACING, PRIORITY, Bench, bench, prompt

NAMES = [f"r{index:03d}" for index in range(100)]


def waiting(b: Bench) -> list[str]:
    return [request.request_id for request in b.scheduler.waiting]


def add_all(b: Bench, names: list[str]) -> None:
    for name in names:
        b.add(name, prompt(8), 6, priority=3, arrival_time=1.5)


def test_two_of_one_prompt_are_served() -> None:
    b = bench(PRIORITY)
    add_all(b, ["n0", "n1"])
    b.finish()
    assert [name for name, _ in b.ends] == ["n0", "n1"]


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_equal_ones_stand_in_order_of_their_ids(seed: int) -> None:
    """The order is (priority, arrival, id), however they came."""
    shuffled = NAMES.copy()
    Random(seed).shuffle(shuffled)
    b = bench(PRIORITY, budget=256, max_num_seqs=16)
    add_all(b, shuffled)
    assert waiting(b) == NAMES
    assert list(b.step()) == NAMES[:16]
    assert waiting(b) == NAMES[16:]


def test_a_hundred_equal_ones_are_served_with_preemptions() -> None:
    b = bench(PRIORITY, blocks=40, budget=256, max_num_seqs=16)
    add_all(b, NAMES)
    for _ in range(4):
        b.add("urgent" + str(len(b.outputs)), 60, 4, priority=0)
        b.steps(3)
    b.finish()
    assert b.preempted
    assert sum(reason == "length" for _, reason in b.ends) == 104


def test_preempted_ones_go_back_to_their_place_in_the_order() -> None:
    b = bench(DISPLACING, blocks=100, budget=256, max_num_seqs=4)
    add_all(b, NAMES[:8])
    b.step()
    assert waiting(b) == NAMES[4:8]
    for index in range(4):
        b.add(f"urgent{index}", 8, 2, priority=0)
    b.step()
    assert b.preempted == ["r003", "r002", "r001", "r000"]
    assert waiting(b) == NAMES[:8]
    b.finish()


def test_urgency_comes_before_arrival_and_arrival_before_the_id() -> None:
    b = bench(PRIORITY, max_num_seqs=1)
    b.add("running", 8, 2)
    b.step()
    b.add("c", 8, priority=1, arrival_time=1)
    b.add("a", 8, priority=1, arrival_time=2)
    b.add("b", 8, priority=1, arrival_time=2)
    b.add("d", 8, priority=0, arrival_time=3)
    assert waiting(b) == ["d", "c", "a", "b"]
    b.finish()
