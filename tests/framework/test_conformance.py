"""Each check sees the fault that it is for, and shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import define

from framework import Request, hookimpl
from framework.testing import ConformanceError, check_policy
from framework.testing.checking import CHECKS
from framework.testing.conformance import Report, examine
from framework.testing.playing import play
from framework.testing.scenarios import Scenario, of_lengths, random_scenario
from framework.testing.subject import CheckError, Subject

FAULTY = Path(__file__).with_name("faulty.py")


@define(eq=False)
class Fine:
    """In order of arrival, as fcfs."""

    @hookimpl
    def order_waiting(self, request: Request) -> float:
        return request.arrival_time


@pytest.mark.parametrize(
    ("name", "check", "hook"),
    [
        ("OverBudgetSwallowed", "ends", "step_planned"),
        ("MutatingTokens", "ends", "order_running"),
        ("PeekingAtTheRunner", "hidden lengths", "select_waiting"),
        ("Idling", "idling", "select_waiting"),
        ("Moody", "repeats", "select_waiting"),
        ("Turning", "identical", "pick_displaced"),
        ("Impatient", "time scale", "select_waiting"),
    ],
)
def test_a_check_sees_the_fault_that_it_is_for(name: str, check: str, hook: str) -> None:
    assert (check, hook) in [(each.check, each.hook) for each in examined(name).failures]


def test_the_code_of_a_failure_fails_in_the_same_way() -> None:
    [failure, *_] = examine([f"{FAULTY}:StrangeVictim"], num_seeds=3).failures
    assert failure.code.count("Arrival(") <= 6
    with pytest.raises(CheckError, match="hook=pick_preempt_victim plugin=strange_victim"):
        exec(failure.code, {})


def test_a_policy_that_fails_raises_with_hook_and_plugin() -> None:
    with pytest.raises(ConformanceError, match="FAIL hook=request_arrived plugin=mutating check="):
        check_policy([f"{FAULTY}:Mutating"], num_seeds=1, shrinks=False)


def test_an_exemption_may_be_given_by_the_caller() -> None:
    report = check_policy([f"{FAULTY}:Starving"], num_seeds=1, may_starve=True)
    assert report.exempt == {"starvation": "may_starve"}


def test_an_exemption_that_a_plugin_declares_may_be_taken_back() -> None:
    with pytest.raises(ConformanceError, match="plugin=priority check='starvation'"):
        check_policy(["priority"], num_seeds=1, may_starve=False, shrinks=False)


def test_instances_are_built_anew_for_each_run() -> None:
    mine = Fine()
    subject = Subject([mine])
    played = [subject.play(random_scenario(0)) for _ in range(2)]
    one, other = (dict(each.scheduler.plugins)["fine"].__wrapped__ for each in played)
    assert len({id(one), id(other), id(mine)}) == 3


def test_more_slots_never_make_fcfs_slower() -> None:
    lengths = [(20 + 13 * number % 70, 4 + 7 * number % 19) for number in range(30)]
    means = [
        mean_e2e(of_lengths(lengths, gap=0.015625, max_num_seqs=size)) for size in (1, 2, 4, 8)
    ]
    assert means == sorted(means, reverse=True)


def test_every_check_says_what_it_says() -> None:
    assert all(check.says.endswith(".") for check in CHECKS)


def examined(name: str) -> Report:
    return examine([f"{FAULTY}:{name}"], num_seeds=3, shrinks=False)


def mean_e2e(scenario: Scenario) -> float:
    times = play(scenario, ["fcfs"]).e2e.values()
    return sum(times) / len(times)
