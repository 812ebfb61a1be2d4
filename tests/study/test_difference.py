from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from framework import SchedulerConfig
from framework.study.difference import find_difference
from framework.study.recorded import Recorded
from framework.study.run import simulate_policy
from framework.study.synthetic import make_workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEC = "poisson:rate=30,n=40,prompt=lognormal(200,0.7),output=lognormal(30,0.8)"


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Recorded]:
    def make(name: str, *plugins: Any, seed: int = 1, num_blocks: int = 80) -> Recorded:
        config = SchedulerConfig(num_blocks=num_blocks, max_num_seqs=6, max_num_batched_tokens=256)
        workload = make_workload(SPEC, seed=seed)
        simulate_policy(workload, plugins, config=config, record=tmp_path / name)
        return Recorded(tmp_path / name)

    return make


def test_a_policy_does_not_part_from_itself(record: Callable[..., Recorded]) -> None:
    found = find_difference(record("one.hw", "fcfs"), record("two.hw", "fcfs"))
    assert not found.parts and found.num_same > 100 and not found.notes and not found.rows()


def test_the_first_step_that_differs_is_told(record: Callable[..., Recorded]) -> None:
    pair = record("fcfs.hw", "fcfs"), record("srpt.hw", "srpt", "oracle")
    found = find_difference(*pair)
    steps = list(zip(*(recorded.steps() for recorded in pair), strict=False))
    plans = [[list(step.get("plan", {}).items()) for step in both] for both in steps]
    assert found.parts and found.steps == steps[found.num_same]
    assert all(one == other for one, other in plans[: found.num_same])
    assert plans[found.num_same][0] != plans[found.num_same][1]


def test_what_each_saw_and_did_stands_side_by_side(record: Callable[..., Recorded]) -> None:
    found = find_difference(record("fcfs.hw", "fcfs"), record("srpt.hw", "srpt", "oracle"))
    rows = {what: (one, other) for what, one, other in found.rows()}
    assert {"time", "running", "waiting", "free blocks", "budget left"} <= rows.keys()
    assert rows["time"][0] == rows["time"][1] and rows["waiting"][0] != rows["waiting"][1]


def test_other_limits_and_other_workloads_are_noted(record: Callable[..., Recorded]) -> None:
    one = record("one.hw", "fcfs")
    assert find_difference(one, record("two.hw", "fcfs", num_blocks=60)).notes == [
        "config: num_blocks: 80, 60"
    ]
    (note,) = find_difference(one, record("three.hw", "fcfs", seed=2)).notes
    assert note.startswith("the workloads are not the same")
