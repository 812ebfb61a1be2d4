"""An admission that fails for want of blocks leaves no trace; idle hits are not free twice."""

from __future__ import annotations

from tests.support import Bench, bench, prompt


def with_c_waiting(*, block_size: int = 4, prompt_b: int = 10, max_tokens_b: int = 4) -> Bench:
    """P's two blocks lie idle, B holds three of six, C needs two hits and three new ones."""
    b = bench(blocks=6, block_size=block_size, budget=256)
    shared = prompt(2 * block_size)
    b.add("A", shared, 1)
    b.step()
    b.add("B", prompt_b, max_tokens_b)
    b.step()
    c = b.add("C", shared + prompt(3 * block_size, 500), 1)
    assert b.scheduler.kv is not None
    assert b.scheduler.kv.num_free_blocks == 3
    assert b.scheduler.kv.peek_prefix(c) == 2 * block_size
    return b


def ref_counts(b: Bench) -> list[int]:
    owner = dict(b.scheduler.plugins)["kv_blocks"]
    return list(owner.pool.ref_counts)  # type: ignore[attr-defined]


def test_an_idle_hit_is_not_counted_as_a_free_block_too() -> None:
    """Three are free, but two of them are the hits: three new ones are not there."""
    b = with_c_waiting()
    assert b.step() == {"B": 1}
    assert [request.request_id for request in b.scheduler.waiting] == ["C"]


def test_ten_refused_admissions_change_no_count() -> None:
    """The blocks are large here, so that B needs no new one for that long."""
    b = with_c_waiting(block_size=16, prompt_b=33, max_tokens_b=14)
    before, free = ref_counts(b), b.scheduler.kv.free_block_ids()  # type: ignore[union-attr]
    for _ in range(10):
        assert b.step() == {"B": 1}
        assert ref_counts(b) == before
        assert b.scheduler.kv.free_block_ids() == free  # type: ignore[union-attr]
        assert len(free) == 3
    b.finish()
    assert b.hit("C") == 32


def test_c_is_admitted_with_its_hit_when_b_ends() -> None:
    b = with_c_waiting()
    assert b.steps(3) == [{"B": 1}] * 3
    assert b.ends[-1] == ("B", "length")
    assert b.step() == {"C": 12}
    assert b.hit("C") == 8
    assert b.preempted == []
    b.finish()
