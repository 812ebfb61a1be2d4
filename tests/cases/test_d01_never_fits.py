"""A request that is larger than the whole pool is refused; it does not block those behind it."""

from __future__ import annotations

import pytest

from framework import RequestError
from tests.support import Bench, bench


@pytest.fixture
def small() -> Bench:
    """128 tokens in the pool, 256 in the model."""
    return bench(blocks=8, block_size=16, budget=64, max_num_seqs=4, max_model_len=256)


def test_a_prompt_beyond_the_pool_is_refused_with_need_and_capacity(small: Bench) -> None:
    assert small.scheduler.kv is not None
    with pytest.raises(RequestError, match=r"need 11 KV blocks of 16, the pool has 8"):
        small.add("A", 160, 4)
    assert small.scheduler.kv.num_free_blocks == 8
    assert not small.scheduler.has_requests()


def test_the_next_request_is_served_at_once(small: Bench) -> None:
    with pytest.raises(RequestError):
        small.add("A", 160, 4)
    b = small.add("B", 20, 4)
    small.steps(6)
    assert small.ends == [("B", "length")]
    assert b.num_output_tokens == 4
    small.finish()


def test_output_that_cannot_fit_is_refused_at_once(small: Bench) -> None:
    with pytest.raises(RequestError, match=r"139 tokens .* need 9 KV blocks of 16, the pool has 8"):
        small.add("A", 120, 20)
    b = small.add("B", 20, 4)
    small.finish(most=6)
    assert b.num_output_tokens == 4
    assert small.preempted == []


def test_the_last_token_needs_no_slot(small: Bench) -> None:
    a = small.add("A", 120, 9)
    small.finish()
    assert a.num_output_tokens == 9
    assert small.ends == [("A", "length")]
    assert small.preempted == []


def test_one_slot_more_is_refused(small: Bench) -> None:
    with pytest.raises(RequestError, match=r"129 tokens"):
        small.add("A", 120, 10)


def test_without_a_maximum_the_output_ends_where_the_pool_does(small: Bench) -> None:
    a = small.add("A", 120, None)
    b = small.add("B", 20, 4)
    small.finish()
    assert a.num_output_tokens == 9
    assert b.num_output_tokens == 4
    assert sorted(small.ends) == [("A", "length"), ("B", "length")]
    assert small.preempted.count("A") <= 1
