"""What a recording lacks, or has too much of, is named; the command says which recording."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from framework.cli.app import app
from framework.testing import Difference, check_directory, compare
from framework.testing.oracle import RecordingError, read_recording

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def recording() -> dict[str, Any]:
    return read_recording(GOLDEN / "kv_preempt_tail.json.gz")


def write(path: Path, recording: dict[str, Any]) -> None:
    path.write_bytes(gzip.compress(json.dumps(recording).encode()))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda g: g.pop("final"), r"x\.json\.gz: lacks final"),
        (lambda g: g.update(steps=5), r"x\.json\.gz: steps: got int, allowed: list"),
        (lambda g: g["config"].pop("policy"), r"x\.json\.gz: config: lacks policy"),
        (lambda g: g["scenario"].pop("requests"), r"x\.json\.gz: scenario: lacks requests"),
        (
            lambda g: g["scenario"]["requests"][1].pop("max_tokens"),
            r"x\.json\.gz: scenario\.requests\[1\]: lacks max_tokens",
        ),
        (
            lambda g: g["request_state_fields"].append("mood"),
            r"x\.json\.gz: request_state_fields: a request has no 'mood'",
        ),
    ],
    ids=["part", "type", "config", "requests", "request", "state field"],
)
def test_a_missing_part_is_named(
    tmp_path: Path,
    recording: dict[str, Any],
    change: Callable[[dict[str, Any]], object],
    sentence: str,
) -> None:
    change(recording)
    write(tmp_path / "x.json.gz", recording)
    with pytest.raises(RecordingError, match=sentence):
        list(check_directory(tmp_path))


def test_steps_beyond_ours_are_a_difference(recording: dict[str, Any]) -> None:
    recording["steps"].append({"step": 18, "idle": True})
    assert compare(recording) == Difference("kv_preempt_tail", 18, "num_steps", 18, 19)


def test_a_state_that_is_cut_short_is_a_difference(recording: dict[str, Any]) -> None:
    states = recording["steps"][7]["after_schedule"]["requests"]
    whole, states["b"] = states["b"], states["b"][:-1]
    difference = compare(recording)
    expected = Difference("kv_preempt_tail", 7, "after_schedule.requests.b", whole, whole[:-1])
    assert difference == expected


def test_a_missing_field_is_a_difference(recording: dict[str, Any]) -> None:
    del recording["steps"][0]["schedule"]["total_num_scheduled_tokens"]
    field = "schedule.total_num_scheduled_tokens"
    assert compare(recording) == Difference("kv_preempt_tail", 0, field, 20, "nothing")


def test_a_block_under_two_numbers_is_found_in_a_later_step(recording: dict[str, Any]) -> None:
    assert recording["steps"][7]["schedule"]["cached"][0]["new_block_ids"] == [8]
    recording["steps"][7]["schedule"]["cached"][0]["new_block_ids"] = [6]
    difference = compare(recording)
    assert difference is not None
    assert (difference.step, difference.field) == (7, "schedule.cached[0].new_block_ids[0]")
    assert difference.ours == "block 8 (known as recorded block 8)"
    assert difference.recorded == "block 6 (ours: 6)"


def test_the_command_names_scenario_step_field_and_both_values(
    tmp_path: Path, recording: dict[str, Any]
) -> None:
    write(tmp_path / "a.json.gz", read_recording(GOLDEN / "fcfs_single.json.gz"))
    recording["steps"][7]["schedule"]["preempted"] = ["a"]
    write(tmp_path / "b.json.gz", recording)
    ended = CliRunner().invoke(app, ["oracle", str(tmp_path)])
    lines = ended.stdout.splitlines()
    assert ended.exit_code == 1
    assert "kv_preempt_tail: step 7, schedule.preempted[0]: ours 'b', recorded 'a'" in lines
    assert lines[-1] == "1 same, 1 differ"
