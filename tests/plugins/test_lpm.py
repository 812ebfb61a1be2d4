"""Longest prefix first: what it finds, when it does not look, and whom it forgets."""

from __future__ import annotations

import pytest
from attrs import define

from framework import Request, hookimpl
from plugins.lpm import Lpm
from tests.plugins.prefixed import measured
from tests.plugins.simulated import SEEDS, simulated
from tests.support import Bench, bench, prompt


@pytest.mark.parametrize("seed", SEEDS)
def test_it_finds_much_more_in_the_cache_than_fcfs(seed: int) -> None:
    fcfs, lpm = measured("fcfs", seed)[0], measured("lpm", seed)[0]
    assert lpm.prefix_hit_rate is not None and fcfs.prefix_hit_rate is not None
    assert lpm.prefix_hit_rate > fcfs.prefix_hit_rate + 0.2
    assert lpm.requests_per_s > 1.2 * fcfs.requests_per_s


@pytest.mark.parametrize("seed", SEEDS)
def test_it_lets_a_tenant_with_rare_prefixes_starve(seed: int) -> None:
    service = measured("lpm", seed)[0].service
    assert service["cold"] < 0.3 * service["hot"]


def test_without_shared_prefixes_it_is_the_order_of_the_queue() -> None:
    spec = "poisson:rate=12,n=200,prompt=lognormal(500,0.7),output=100"
    limits = {"max_num_seqs": 8}
    lpm, fcfs = (simulated(name, spec, 0, **limits).outcome for name in ("lpm", "fcfs"))
    assert lpm == fcfs


def small(policy: object, **limits: int) -> Bench:
    b = bench(("kv_blocks", "chunked_prefill", "fcfs", policy), budget=128, **limits)
    b.add("warm", [*prompt(40), 7])
    b.step()
    return b


def test_the_longest_cached_prefix_goes_first() -> None:
    b = small(Lpm(), max_num_seqs=1)
    b.add("none", 48)
    b.add("short", [*prompt(16), *prompt(32, 500)])
    b.add("long", [*prompt(40), *prompt(8, 700)])
    assert [list(step) for step in b.steps(3)] == [["long"], ["short"], ["none"]]
    b.finish()


def test_a_queue_that_is_too_long_keeps_its_order() -> None:
    b = small(Lpm(longest_queue=2), max_num_seqs=1)
    b.add("none", 48)
    b.add("short", [*prompt(16), *prompt(32, 500)])
    b.add("long", [*prompt(40), *prompt(8, 700)])
    assert [list(step) for step in b.steps(3)] == [["none"], ["long"], ["short"]]


def test_of_equal_uncached_beginnings_one_goes_ahead() -> None:
    b = small(Lpm())
    for name in ("twin", "other"):
        b.add(name, [*prompt(36, 100), *prompt(8, 300 + len(name))])
    b.add("third", 30)
    assert list(b.step()) == ["twin", "third", "other"]
    assert b.hit("other") == 36


def test_a_beginning_shorter_than_the_limit_is_nobodys_twin() -> None:
    b = small(Lpm(shared_tokens=40))
    for name in ("twin", "other"):
        b.add(name, prompt(36, 100))
    b.add("third", 30)
    assert list(b.step()) == ["twin", "other", "third"]


def test_nobody_is_admitted_past_one_without_room() -> None:
    b = small(Lpm(), blocks=20)
    b.add("runs", 8, 30)
    b.step()
    b.add("long", [*prompt(40), *prompt(32, 700)])
    b.add("small", 4)
    assert list(b.step()) == ["runs"]


@define(eq=False)
class Veto:
    """A gate for one request."""

    @hookimpl
    def may_admit(self, request: Request) -> bool:
        return request.request_id != "long"


def test_one_that_another_plugin_vetoes_is_passed_over() -> None:
    b = bench(("kv_blocks", "chunked_prefill", "fcfs", Veto(), Lpm()))
    b.add("warm", [*prompt(40), 7])
    b.step()
    b.add("long", [*prompt(40), *prompt(8, 700)])
    b.add("small", 4)
    assert list(b.step()) == ["small"]
