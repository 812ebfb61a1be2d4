"""A prompt whose every block is cached still has a token to compute: it needs logits."""

from __future__ import annotations

import pytest

from tests.support import DISPLACING, Bench, bench, prompt


def run_twice(length: int) -> tuple[Bench, list[int], list[int]]:
    """A prompt run to its end, then the same prompt again, one step of it."""
    b = bench(blocks=6)
    first = b.add("A", prompt(length))
    b.finish()
    second = b.add("B", prompt(length))
    b.step()
    return b, first.output_token_ids, second.output_token_ids


@pytest.mark.parametrize(("length", "hit"), [(8, 4), (9, 8), (7, 4), (4, 0), (12, 8)])
def test_a_hit_is_whole_blocks_and_leaves_a_token(length: int, hit: int) -> None:
    b, first, second = run_twice(length)
    assert b.hit("B") == hit <= length - 1
    assert b.outputs[-1].num_scheduled_tokens == {"B": length - hit}
    assert second == first
    b.finish()


@pytest.mark.parametrize(("length", "hit"), [(8, 4), (9, 8)])
def test_the_same_holds_when_it_is_preempted_right_after_admission(length: int, hit: int) -> None:
    """It comes back with one output token more, so then its whole prompt may be hit."""
    b = bench(DISPLACING, blocks=6, max_num_seqs=1)
    first = b.add("A", prompt(length))
    b.finish()
    second = b.add("B", prompt(length), 2, priority=1)
    b.step()
    assert b.hit("B") == hit
    b.add("U", 3, 1)
    assert b.steps(2) == [{"U": 3}, {"B": length + 1 - 8}]
    assert b.preempted == ["B"]
    assert b.outputs[-1].scheduled_cached_reqs.num_computed_tokens == [8]
    assert second.output_token_ids[:1] == first.output_token_ids
    b.finish()


def test_the_cached_last_block_is_not_written_while_another_request_shares_it() -> None:
    b = bench(blocks=6)
    a = b.add("A", prompt(8), 4)
    b.step()
    twin = b.add("B", prompt(8), 4)
    b.step()
    kv = b.scheduler.kv
    assert kv is not None
    assert kv.block_ids(twin)[0] == kv.block_ids(a)[0]
    assert kv.block_ids(twin)[1] != kv.block_ids(a)[1]
    assert kv.num_shared_blocks(a) == 1
    b.finish()
    assert twin.output_token_ids == a.output_token_ids
