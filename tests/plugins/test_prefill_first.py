"""vLLM V0's step: prompts or decodes, prompts first."""

from __future__ import annotations

import pytest
from attrs import define

from framework import hookimpl
from tests.plugins.simulated import SEEDS, simulated
from tests.support import Bench, bench

STACK = ("kv_blocks", "fcfs", "prefill_first")
LOAD = "poisson:rate=4,n=200,prompt=lognormal(1500,0.7),output=lognormal(200,0.7)"


def test_a_prompt_stops_everybody_who_decodes_for_a_step() -> None:
    b = bench(STACK, budget=64)
    b.add("a", 8, 10)
    assert b.steps(2) == [{"a": 8}, {"a": 1}]
    b.add("b", 30, 10)
    assert b.steps(2) == [{"b": 30}, {"a": 1, "b": 1}]
    b.finish()


def test_a_step_takes_as_many_whole_prompts_as_the_budget_holds() -> None:
    b = bench(STACK, budget=64)
    for name in "abc":
        b.add(name, 25, 5)
    assert b.steps(3) == [{"a": 25, "b": 25}, {"c": 25}, {"a": 1, "b": 1, "c": 1}]
    b.finish()


def test_all_decode_while_the_next_prompt_finds_no_blocks() -> None:
    b = bench(STACK, blocks=12, budget=64)
    b.add("a", 16, 8)
    b.step()
    b.add("b", 40, 2)
    assert b.step() == {"a": 1}
    b.finish()
    assert b.first_token_step("b") > 7


def test_a_prompt_beyond_the_whole_budget_runs_in_steps_of_its_own() -> None:
    b = bench(STACK, budget=64)
    b.add("a", 8, 20)
    b.step()
    b.add("b", 150, 2)
    assert b.steps(4) == [{"b": 64}, {"b": 64}, {"b": 22}, {"a": 1, "b": 1}]
    b.finish()


@define(eq=False)
class Gate:
    """Lets in, or not."""

    is_open: bool = True

    @hookimpl
    def may_admit(self) -> bool:
        return self.is_open


def shut_gate() -> tuple[Bench, Gate]:
    """a and c run, b has been kept out, and the gate is open again."""
    gate = Gate()
    b = bench((*STACK, gate), budget=64)
    b.add("a", 8, 4)
    b.add("c", 8, 9)
    b.step()
    gate.is_open = False
    b.add("b", 8, 4)
    assert b.steps(2) == [{}, {"a": 1, "c": 1}]
    gate.is_open = True
    return b, gate


def test_nobody_joins_a_step_of_decodes_and_an_end_lets_prompts_try_again() -> None:
    b, _ = shut_gate()
    assert b.steps(3) == [{"a": 1, "c": 1}, {"a": 1, "c": 1}, {"b": 8}]
    b.finish()


def test_an_arrival_lets_prompts_try_again() -> None:
    b, _ = shut_gate()
    b.add("d", 8, 4)
    assert b.step() == {"b": 8, "d": 8}
    b.finish()


def test_a_gate_that_stays_shut_costs_one_step() -> None:
    b, gate = shut_gate()
    gate.is_open = False
    assert b.steps(2) == [{"a": 1, "c": 1}, {"a": 1, "c": 1}]
    gate.is_open = True
    b.finish()


@pytest.mark.parametrize("seed", SEEDS)
def test_prompts_show_as_stalls_that_chunks_beside_decodes_do_not(seed: int) -> None:
    stalled = simulated("prefill_first", LOAD, seed).outcome
    shared = simulated("fcfs", LOAD, seed).outcome
    assert stalled.itl_s.p99 is not None
    assert shared.itl_s.max is not None
    assert stalled.itl_s.p99 > 1.3 * shared.itl_s.max
    assert stalled.itl_s.max > 4 * shared.itl_s.max
