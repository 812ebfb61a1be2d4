"""The budget is charged with what an admission really finds, not with what a look before found."""

from __future__ import annotations

from tests.support import FCFS, bench, prompt

P = prompt(8)


def test_a_hit_that_is_evicted_in_the_same_step_is_paid_for() -> None:
    b = bench(blocks=8, budget=24)
    b.add("p", P, 1)
    b.finish()
    b.add("fill", 24, 1)
    b.finish()
    b.add("X", 20, 1)
    y = b.add("Y", P + prompt(4, 900), 1)
    kv = b.scheduler.kv
    assert kv is not None
    assert kv.peek_prefix(y) == 8
    assert b.step() == {"X": 20, "Y": 4}
    assert b.hit("Y") == 0
    assert b.step() == {"Y": 8}
    b.finish()


def test_drafts_are_paid_for_too() -> None:
    """D decodes with three drafts in each step, all of them wrong."""
    stack = (*FCFS, 'spec_decode(method="runner")')
    b = bench(stack, blocks=13, budget=24, num_spec_tokens=3)
    b.runner.drafts = lambda name, position, count: [40_000] * count
    b.add("D", 16, 8)
    b.step()
    b.add("p", P, 1)
    assert b.step() == {"D": 4, "p": 8}
    b.add("fill", 20, 1)
    assert b.step() == {"D": 4, "fill": 20}
    b.add("X", 16, 1)
    y = b.add("Y", P + prompt(4, 900), 1)
    assert b.scheduler.kv is not None
    assert b.scheduler.kv.peek_prefix(y) == 8
    assert b.step() == {"D": 4, "X": 16, "Y": 4}
    assert b.hit("Y") == 0
    b.finish()


def test_more_drafts_than_the_budget_are_cut_to_it() -> None:
    stack = (*FCFS, 'spec_decode(method="runner")')
    b = bench(stack, budget=9, num_spec_tokens=3)
    b.runner.drafts = lambda name, position, count: [40_000] * count
    for name in ("a", "b", "c"):
        b.add(name, 3, 8)
    assert b.step() == {"a": 3, "b": 3, "c": 3}
    assert b.step() == {"a": 4, "b": 4, "c": 1}
    b.finish()
