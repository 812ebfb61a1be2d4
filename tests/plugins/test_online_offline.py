"""Offline work beside online requests: within the budget of time, and out of the way."""

from __future__ import annotations

from functools import cache

import pytest

from framework import (
    LinearLatency,
    PluginError,
    Request,
    Scheduler,
    SchedulerConfig,
    StepView,
    hookimpl,
)
from framework.study.run import Run, default_config, simulate_policy
from framework.study.synthetic import make_workload
from plugins.online_offline import OnlineOffline
from tests.plugins.simulated import LATENCY, SEEDS
from tests.support import Bench

STEP_S = 0.06
ONLINE = "poisson:rate=2,n=60,prompt=lognormal(1000,0.7),output=lognormal(200,0.8),tenants=online"
ENDLESS = "constant:rate=100000,n=400,prompt=1000,output=200,tenants=offline,priority=1"
POOLS = (26_876, 2_501)
"""Blocks: more than anybody needs, and few enough that offline requests must give way."""


@cache
def run(policy: str, spec: str, seed: int, num_blocks: int) -> Run:
    config = default_config(LATENCY, num_blocks=num_blocks)
    workload = make_workload(spec, seed=seed)
    return simulate_policy(workload, [policy], config=config, horizon=30)


def column(run: Run, name: str, tenant: str) -> list[float]:
    """A column of the tenant's requests that ended well."""
    rows = zip(run.meter.ended, run.meter.columns[name], strict=True)
    return [value for end, value in rows if end.arrival.tenant == tenant and end.reason == "stop"]


@pytest.mark.parametrize("num_blocks", POOLS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_online_gap_exceeds_the_budget_with_and_without_endless_offline_work(
    seed: int, num_blocks: int
) -> None:
    for spec in (ONLINE, f"{ONLINE} + {ENDLESS}"):
        found = run(f"online_offline(step_s={STEP_S})", spec, seed, num_blocks)
        gaps = column(found, "longest_gap", "online")
        assert len(gaps) > 30
        assert max(gaps) < 1.1 * STEP_S


@pytest.mark.parametrize("num_blocks", POOLS)
@pytest.mark.parametrize("seed", SEEDS)
def test_offline_work_gets_done_meanwhile(seed: int, num_blocks: int) -> None:
    both = run(f"online_offline(step_s={STEP_S})", f"{ONLINE} + {ENDLESS}", seed, num_blocks)
    alone = run(f"online_offline(step_s={STEP_S})", ONLINE, seed, num_blocks)
    assert len(column(both, "e2e", "offline")) > 50
    assert both.outcome.output_tokens_per_s > 2 * alone.outcome.output_tokens_per_s


@pytest.mark.parametrize("seed", SEEDS)
def test_priorities_alone_break_the_budget(seed: int) -> None:
    found = run("priority(displace=True)", f"{ONLINE} + {ENDLESS}", seed, POOLS[0])
    assert max(column(found, "longest_gap", "online")) > 2 * STEP_S


@pytest.mark.parametrize("seed", SEEDS)
def test_online_requests_wait_a_few_steps_longer_at_most(seed: int) -> None:
    alone, both = (
        column(run(f"online_offline(step_s={STEP_S})", spec, seed, POOLS[1]), "ttft", "online")
        for spec in (ONLINE, f"{ONLINE} + {ENDLESS}")
    )
    assert sum(both) / len(both) < sum(alone) / len(alone) + 3 * STEP_S


def small(
    *, blocks: int = 100, token_ms: float = 1.0, max_num_seqs: int = 16, **arguments: float
) -> Bench:
    """A bench on which each token takes so many milliseconds."""
    config = SchedulerConfig(
        block_size=4, num_blocks=blocks + 1, max_num_batched_tokens=64, max_num_seqs=max_num_seqs
    )
    plugin = OnlineOffline(**{"step_s": 0.0205, "keep_free": 0.0, **arguments})
    latency = LinearLatency(token_ms=token_ms)
    return Bench(Scheduler(config, ("kv_blocks", plugin), latency=latency))


def test_an_offline_prompt_gets_the_tokens_that_time_is_left_for() -> None:
    b = small()
    b.add("online", 8, 20)
    b.add("offline", 40, 2, priority=1)
    assert b.steps(3) == [
        {"online": 8, "offline": 12},
        {"online": 1, "offline": 19},
        {"online": 1, "offline": 9},
    ]
    b.finish()


def test_offline_decodes_that_do_not_fit_sit_out() -> None:
    b = small(step_s=0.0035)
    for name in ("a", "b"):
        b.add(name, 1, 30, priority=1)
    b.step()
    for name in ("x", "y"):
        b.add(name, 1, 30)
    b.step()
    assert b.step() == {"x": 1, "y": 1, "a": 1}
    b.finish()


def test_an_offline_prompt_of_one_token_needs_its_time_too() -> None:
    b = small(step_s=0.0025)
    for name in ("x", "y"):
        b.add(name, 1, 5)
    b.step()
    b.add("offline", 1, 2, priority=1)
    assert b.step() == {"x": 1, "y": 1}
    b.finish()


def test_offline_decodes_leave_time_for_online_prompts_that_wait() -> None:
    b = small()
    for name in ("a", "b", "c"):
        b.add(name, 4, 30, priority=1)
    b.steps(2)
    b.add("online", 19, 2)
    assert b.step() == {"a": 1, "online": 19}
    b.finish()


def test_offline_prompts_sit_out_while_an_online_request_waits() -> None:
    b = small()
    b.add("offline", 60, 2, priority=1)
    b.step()
    b.add("online", 8, 2)
    assert b.step() == {"online": 8}
    b.finish()


class Shut:
    """A gate that keeps online requests out while anybody runs."""

    @hookimpl
    def may_admit(self, request: Request, step: StepView) -> bool:
        return request.priority > 0 or not step.num_running


def test_an_online_request_that_cannot_come_in_does_not_stop_offline_prompts_for_good() -> None:
    config = SchedulerConfig(max_num_batched_tokens=16)
    stack = ("kv_blocks", OnlineOffline(), Shut())
    b = Bench(Scheduler(config, stack, latency=LinearLatency(token_ms=1.0)))
    b.add("offline", 60, 2, priority=1)
    b.step()
    b.add("online", 8, 2)
    b.finish()
    assert b.first_token_step("offline") < b.first_token_step("online")


def test_online_prompts_get_no_more_than_the_chunk() -> None:
    b = small(chunk=16)
    b.add("first", 10, 5)
    b.add("second", 40, 2)
    assert b.steps(2) == [{"first": 10, "second": 6}, {"first": 1, "second": 15}]
    b.finish()


class Guesses:
    """Two drafts for everybody."""

    @hookimpl
    def propose_drafts(self) -> list[int]:
        return [1, 2]


def test_an_online_decode_keeps_its_drafts_beyond_the_chunk() -> None:
    config = SchedulerConfig(num_spec_tokens=2, max_num_batched_tokens=64)
    stack = ("kv_blocks", Guesses(), OnlineOffline(chunk=2))
    b = Bench(Scheduler(config, stack, latency=LinearLatency(token_ms=1.0)))
    b.add("online", 2, 20)
    b.steps(2)
    assert b.step() == {"online": 3}
    b.finish()


def test_online_decodes_go_before_online_prompts() -> None:
    b = small(chunk=16)
    b.add("long", 40, 3)
    b.step()
    b.add("short", 1, 3)
    b.step()
    assert list(b.step()) == ["short", "long"]
    b.finish()


def test_an_online_request_takes_the_slot_of_the_last_offline_one() -> None:
    b = small(max_num_seqs=2)
    for name in ("a", "b"):
        b.add(name, 4, 30, priority=1)
    b.steps(2)
    b.add("online", 4, 2)
    assert b.step() == {"a": 1, "online": 4}
    assert b.preempted == ["b"]
    b.finish()


def test_an_online_request_takes_blocks_from_offline_ones() -> None:
    b = small(blocks=12)
    for name in ("a", "b"):
        b.add(name, 16, 6, priority=1)
    b.steps(3)
    b.add("online", 18, 2)
    assert "online" in b.step()
    assert b.preempted == ["b"]
    b.finish()


def test_nobody_gives_way_where_it_would_not_help() -> None:
    b = small(blocks=12)
    b.add("online", 20, 20)
    b.step()
    b.add("offline", 8, 4, priority=1)
    b.steps(2)
    b.add("large", 40, 2)
    b.step()
    assert b.preempted == []
    b.finish()


def test_an_offline_request_takes_nobodys_place() -> None:
    b = small(max_num_seqs=1)
    b.add("a", 4, 10, priority=1)
    b.step()
    b.add("b", 4, 2, priority=1)
    b.step()
    assert b.preempted == []
    b.finish()


def test_offline_requests_give_way_first_when_blocks_run_out() -> None:
    b = small(blocks=8)
    b.add("offline", 8, 20, priority=1)
    b.step()
    b.add("online", 8, 20)
    b.finish()
    assert set(b.preempted) == {"offline"}


def test_offline_prompts_leave_a_share_of_the_pool_free() -> None:
    b = small(blocks=20, keep_free=0.5)
    b.add("online", 8, 10)
    b.add("offline", 36, 2, priority=1)
    assert b.step() == {"online": 8}
    b.finish()


def test_offline_work_that_is_alone_goes_on_however_short_the_time() -> None:
    b = small(step_s=0.0001)
    b.add("a", 6, 3, priority=1)
    b.add("b", 6, 3, priority=1)
    b.finish()


def test_who_counts_as_offline_can_be_said() -> None:
    b = small(offline_from=5, max_num_seqs=1)
    b.add("offline", 8, 4, priority=5)
    b.add("online", 8, 2, priority=4)
    assert list(b.step()) == ["online"]
    b.finish()


def test_without_a_latency_model_it_says_what_is_missing() -> None:
    with pytest.raises(PluginError, match="given no latency model"):
        Scheduler(SchedulerConfig(), ("kv_blocks", "online_offline"))
