"""`headway check` names the hook of each planted fault, and exits with 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

FAULTY = Path(__file__).resolve().parents[1] / "framework" / "faulty.py"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("StrangeVictim", "FAIL hook=pick_preempt_victim plugin=strange_victim check='ends'"),
        ("OverBudget", "FAIL hook=step_planned plugin=over_budget check='ends'"),
        ("Dropping", "FAIL hook=select_waiting plugin=dropping check='ends'"),
        ("Starving", "FAIL hook=order_waiting plugin=starving check='starvation'"),
        ("Peeking", "FAIL hook=order_waiting plugin=peeking check='ends'"),
        ("Mutating", "FAIL hook=request_arrived plugin=mutating check='ends'"),
        ("Raising", "FAIL hook=request_admitted plugin=raising check='ends'"),
        ("Slow", "FAIL hook=order_running plugin=slow check='speed'"),
    ],
)
def test_a_planted_fault_is_caught(headway: Callable[..., Result], name: str, told: str) -> None:
    result = headway("check", f"{FAULTY}:{name}", "--seeds", 3, "--no-shrink")
    assert result.exit_code == 1, result.output
    assert told in result.output


def test_a_failure_is_shown_with_code_of_a_few_requests(headway: Callable[..., Result]) -> None:
    result = headway("check", f"{FAULTY}:Raising", "--seeds", 1)
    assert "check_scenario(" in result.output
    assert result.output.count("Arrival(") == 1, result.output


def test_a_policy_without_fault_passes_and_its_hooks_are_timed(
    headway: Callable[..., Result], tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    result = headway("check", f"{FAULTY}:Fine", "--seeds", 1, "--json", file)
    assert result.exit_code == 0, result.output
    [report] = json.loads(file.read_text())["reports"]
    costs = {(cost["plugin"], cost["hook"]): cost for cost in report["hooks"]}
    assert costs["fine", "order_waiting"]["us_per_call"] > 0
    assert report["failures"] == []


def test_an_exemption_on_the_command_line_counts(headway: Callable[..., Result]) -> None:
    result = headway("check", f"{FAULTY}:Starving", "--seeds", 1, "--may-starve")
    assert result.exit_code == 0, result.output
    assert "exempt: may_starve" in result.output


def test_a_policy_that_is_none_is_bad_input(headway: Callable[..., Result]) -> None:
    result = headway("check", "no_such_policy")
    assert result.exit_code == 2
