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


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("id", ["a"], "id: got list, allowed: str"),
        ("arrive_step", None, "arrive_step: got NoneType, allowed: int"),
        ("arrival_time", "x", "arrival_time: got str, allowed: float"),
        ("prompt_token_ids", None, "prompt_token_ids: got NoneType, allowed: list"),
        ("output_token_ids", [1, "x"], r"output_token_ids: got \[1, 'x'\], allowed: a list of int"),
        ("output_token_ids", [], "output_token_ids: got .., allowed: one token or more"),
        ("accept_counts", 2, "accept_counts: got int, allowed: list"),
        ("remote", [], "remote: got list, allowed: dict"),
    ],
)
def test_a_value_that_no_request_can_have_is_named(
    tmp_path: Path, recording: dict[str, Any], key: str, value: object, sentence: str
) -> None:
    recording["scenario"]["requests"][1][key] = value
    write(tmp_path / "x.json.gz", recording)
    where = r"x\.json\.gz: scenario\.requests\[1\]: "
    with pytest.raises(RecordingError, match=where + sentence):
        list(check_directory(tmp_path))


def test_a_request_that_is_no_mapping_is_named(tmp_path: Path, recording: dict[str, Any]) -> None:
    recording["scenario"]["requests"][1] = None
    write(tmp_path / "x.json.gz", recording)
    with pytest.raises(RecordingError, match=r"requests\[1\]: got NoneType, allowed: dict"):
        list(check_directory(tmp_path))


@pytest.mark.parametrize("block", [-7, 0, 9, "8", [8], None])
def test_a_block_that_the_pool_has_not_is_a_difference(
    recording: dict[str, Any], block: object
) -> None:
    assert recording["config"]["num_blocks"] == 9
    recording["steps"][7]["schedule"]["cached"][0]["new_block_ids"] = [block]
    field = "schedule.cached[0].new_block_ids[0]"
    assert compare(recording) == Difference("kv_preempt_tail", 7, field, "block 8", block)


@pytest.mark.parametrize("blocks", [None, {}, 5])
def test_blocks_that_are_no_list_are_a_difference(
    recording: dict[str, Any], blocks: object
) -> None:
    recording["steps"][7]["schedule"]["cached"][0]["new_block_ids"] = blocks
    field = "schedule.cached[0].new_block_ids"
    assert compare(recording) == Difference("kv_preempt_tail", 7, field, [8], blocks)


@pytest.mark.parametrize("change", [None, {}, "twice"])
def test_a_set_of_blocks_has_each_once(change: object) -> None:
    recording = read_recording(GOLDEN / "mix_cache_thrash.json.gz")
    state = next(
        step["after_update"]
        for step in recording["steps"]
        if step["after_update"]["reusable_blocks"]
    )
    blocks = state["reusable_blocks"]
    state["reusable_blocks"] = [*blocks, blocks[-1]] if change == "twice" else change
    difference = compare(recording)
    assert difference is not None
    assert difference.field == "after_update.reusable_blocks"


def test_a_call_that_is_no_list_is_a_difference() -> None:
    recording = read_recording(GOLDEN / "conn_sync.json.gz")
    whole, recording["steps"][0]["connector"][0] = recording["steps"][0]["connector"][0], None
    assert compare(recording) == Difference("conn_sync", 0, "connector[0]", whole, None)


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
