"""The prefix cache can be forgotten, while nobody holds blocks."""

from __future__ import annotations

import pytest

from framework import PolicyError, Scheduler, hookimpl
from tests.support import FCFS, bench


def test_what_was_cached_is_computed_again() -> None:
    b = bench(FCFS)
    b.add("first", list(range(12)))
    b.finish()
    assert b.scheduler.reset_prefix_cache() is True
    assert b.scheduler.kv is not None and not b.scheduler.kv.reusable_block_ids()
    b.add("second", list(range(12)))
    b.finish()
    assert b.hit("second") == 0
    b.add("third", list(range(12)))
    b.finish()
    assert b.hit("third") == 8


def test_nothing_is_forgotten_while_requests_hold_blocks() -> None:
    b = bench(FCFS)
    b.add("first", list(range(12)), 4)
    b.step()
    assert b.scheduler.reset_prefix_cache() is False
    b.add("second", list(range(12)))
    b.finish()
    assert b.hit("second") == 8


def test_a_view_that_remembers_what_it_saw_sees_the_change() -> None:
    b = bench((*FCFS[:2], "lpm"))
    b.add("first", list(range(12)))
    b.finish()
    late = b.add("late", list(range(12)))
    kv = b.scheduler.kv
    assert kv is not None and kv.peek_prefix(late) == 8
    b.scheduler.reset_prefix_cache()
    assert kv.peek_prefix(late) == 0
    b.finish()


def test_without_an_owner_there_is_nothing_to_forget() -> None:
    assert Scheduler(None, ["fcfs"]).reset_prefix_cache() is True


def test_an_owner_that_raises_is_named() -> None:
    class Wrapping:
        @hookimpl(wrapper=True)
        def reset_prefix_cache(self) -> object:
            yield
            raise ValueError("oh")

    scheduler = Scheduler(None, [*FCFS, Wrapping()])
    with pytest.raises(PolicyError, match="'wrapping', hook 'reset_prefix_cache'"):
        scheduler.reset_prefix_cache()
