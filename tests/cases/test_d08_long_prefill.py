"""One very long prompt does not keep the short ones waiting, where chunks are capped."""

from __future__ import annotations

from framework import Request
from tests.support import Bench, bench

SHORTS = ["s0", "s1", "s2", "s3"]


def one_long_and_four_short(chunks: str) -> tuple[Bench, Request]:
    b = bench(("kv_blocks", chunks, "fcfs"), blocks=300, budget=64, max_model_len=1024)
    long = b.add("L", 640, 1)
    for name in SHORTS:
        b.add(name, 8, 1)
    return b, long


def first_tokens(b: Bench) -> dict[str, int]:
    """{id: number of the step, from 1, that gave its first token}."""
    return {
        request.request_id: 1 + b.first_token_step(request.request_id) for request in b.requests
    }


def test_without_a_cap_the_short_ones_wait_for_the_whole_prompt() -> None:
    b, _ = one_long_and_four_short("chunked_prefill")
    b.finish()
    assert first_tokens(b) == {"L": 10} | dict.fromkeys(SHORTS, 11)


def test_with_a_cap_the_short_ones_are_served_beside_it() -> None:
    b, _ = one_long_and_four_short("chunked_prefill(cap=32, lone_exempt=False)")
    b.finish()
    assert first_tokens(b) == {"L": 20} | dict.fromkeys(SHORTS, 1)


def test_with_a_cap_the_long_one_gets_its_cap_in_every_step() -> None:
    b, long = one_long_and_four_short("chunked_prefill(cap=32, lone_exempt=False)")
    while not long.is_finished:
        b.add(f"extra{len(b.outputs)}", 8, 1)
        assert b.step()["L"] == 32
    b.finish()


def test_a_lone_request_is_exempt_and_uses_the_whole_budget() -> None:
    """Work-conserving: what nobody else wants goes to the long one, so it ends earlier."""
    b, _ = one_long_and_four_short("chunked_prefill(cap=32)")
    b.finish()
    assert [output.num_scheduled_tokens.get("L") for output in b.outputs[:3]] == [32, 64, 64]
    assert first_tokens(b) == {"L": 11} | dict.fromkeys(SHORTS, 1)


def test_a_fair_share_of_the_budget_may_exceed_the_cap() -> None:
    """Five requests share 64 tokens: 12 each, above the cap of 8; three share 21 each."""
    b = bench(("kv_blocks", "chunked_prefill(cap=8, fair_share=True)", "fcfs"), blocks=300)
    for index in range(5):
        b.add(f"r{index}", 100, 1)
    assert b.step() == {f"r{index}": 12 for index in range(5)}
    for name in ("r3", "r4"):
        b.abort(name)
    assert b.step() == {f"r{index}": 21 for index in range(3)}
    b.finish()
