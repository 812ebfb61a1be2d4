"""Deficits over longest prefix first: most of its hits, none of its starvation."""

from __future__ import annotations

import pytest

from plugins.dlpm import Dlpm
from tests.plugins.prefixed import measured
from tests.plugins.simulated import SEEDS
from tests.support import Bench, bench, prompt

QUANTUM = 4000


def hit_rate(policy: str, seed: int) -> float:
    found = measured(policy, seed)[0].prefix_hit_rate
    assert found is not None
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_it_keeps_most_of_the_hits_of_lpm(seed: int) -> None:
    lpm, dlpm, vtc = (hit_rate(policy, seed) for policy in ("lpm", "dlpm", "vtc"))
    assert dlpm > 0.85 * lpm
    assert dlpm > vtc + 0.25


@pytest.mark.parametrize("seed", SEEDS)
def test_its_service_gap_is_bounded_where_that_of_lpm_grows(seed: int) -> None:
    assert measured("dlpm", seed)[1].gap < 2.5 * QUANTUM
    assert measured("lpm", seed)[1].gap > 8 * QUANTUM


@pytest.mark.parametrize("seed", SEEDS)
def test_a_smaller_quantum_allows_a_smaller_gap(seed: int) -> None:
    small, usual = (measured(name, seed)[1].gap for name in ("dlpm(quantum=500.0)", "dlpm"))
    assert small < 0.7 * usual


def one_slot(policy: Dlpm) -> Bench:
    return bench(("kv_blocks", "chunked_prefill", "fcfs", policy), max_num_seqs=1)


def tenants(b: Bench, num_steps: int) -> str:
    """Whose requests ran, one a step."""
    return "".join(name[0] for step in b.steps(num_steps) for name in step)


def test_turns_change_when_a_deficit_is_spent() -> None:
    b = one_slot(Dlpm(quantum=20))
    for number in range(8):
        b.add(f"a{number}", 8, tenant="a")
    for number in range(8):
        b.add(f"b{number}", 8, tenant="b")
    assert tenants(b, 8) == "aabbaabb"


def test_a_weight_lengthens_turns() -> None:
    b = one_slot(Dlpm(quantum=20, weights={"a": 3.0}))
    for tenant in "ab":
        for number in range(12):
            b.add(f"{tenant}{number}", 8, tenant=tenant)
    assert tenants(b, 16).count("a") == 12


def test_cached_tokens_cost_nothing_and_outputs_cost_two() -> None:
    dlpm = Dlpm(quantum=1000)
    b = one_slot(dlpm)
    b.add("first", prompt(40), 1, tenant="a")
    b.add("second", [*prompt(32), *prompt(8, 90)], 5, tenant="a")
    b.finish()
    assert b.hit("second") == 32
    assert dlpm.deficits == {"a": 1000 - (40 + 2) - (8 + 5 * 2)}


def test_an_idle_tenant_saves_up_no_more_than_a_quantum() -> None:
    dlpm = Dlpm(quantum=3)
    b = one_slot(dlpm)
    b.add("b0", 4, tenant="b")
    for number in range(20):
        b.add(f"a{number}", 20, tenant="a")
    b.finish()
    assert dlpm.deficits["b"] <= 3


def test_what_is_computed_again_costs_nothing() -> None:
    dlpm = Dlpm(quantum=1000)
    b = bench(("kv_blocks(enable_prefix_caching=False)", "chunked_prefill", "fcfs", dlpm), blocks=8)
    for tenant in "ab":
        b.add(f"{tenant}0", 8, 16, tenant=tenant)
    b.finish()
    assert b.preempted
    assert dlpm.deficits == {"a": 1000 - 8 - 32, "b": 1000 - 8 - 32}


def test_it_never_idles_while_somebody_waits() -> None:
    b = one_slot(Dlpm(quantum=1))
    for tenant in "ab":
        b.add(f"{tenant}0", 60, 10, tenant=tenant)
    assert all(b.steps(20))
    b.finish()
