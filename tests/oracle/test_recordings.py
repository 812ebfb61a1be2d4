"""Our scheduler decides, step for step, what the recordings say; and the comparison can fail."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from framework.testing import compare, replay_directory
from framework.testing.oracle import RecordingError, read_recording, summary

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"
PATHS = sorted(GOLDEN.glob("*.json.gz"))


def recording(name: str) -> dict[str, Any]:
    return read_recording(GOLDEN / f"{name}.json.gz")


def test_all_recordings_are_here() -> None:
    assert len(PATHS) == 139


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_field_of_every_step_is_as_recorded(path: Path) -> None:
    assert compare(read_recording(path)) is None


def first(golden: dict[str, Any], holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The first step of which something holds."""
    return next(step for step in golden["steps"] if holds(step))


def tokens(golden: dict[str, Any]) -> str:
    counts = golden["steps"][1]["schedule"]["num_scheduled_tokens"]
    name = next(iter(counts))
    counts[name] += 1
    return f"schedule.num_scheduled_tokens.{name}"


def order(golden: dict[str, Any]) -> str:
    step = first(golden, lambda step: len(step["schedule"]["num_scheduled_tokens"]) > 1)
    counts = step["schedule"]["num_scheduled_tokens"]
    step["schedule"]["num_scheduled_tokens"] = dict(reversed(counts.items()))
    return "schedule.num_scheduled_tokens (order)"


def block(golden: dict[str, Any]) -> str:
    """The second block of the first table becomes its first one again."""
    blocks = golden["steps"][0]["schedule"]["new"][0]["block_ids"]
    blocks[1] = blocks[0]
    return "schedule.new[0].block_ids[1]"


def victim(golden: dict[str, Any]) -> str:
    step = first(golden, lambda step: step["schedule"]["preempted"])
    step["schedule"]["preempted"][0] = "nobody"
    return "schedule.preempted[0]"


def status(golden: dict[str, Any]) -> str:
    name, state = next(iter(golden["steps"][0]["after_schedule"]["requests"].items()))
    state[0] = "WAITING"
    return f"after_schedule.requests.{name}.status"


def free_queue(golden: dict[str, Any]) -> str:
    queue = golden["steps"][-1]["after_update"]["free_queue"]
    queue[0], queue[1] = queue[1], queue[0]
    return "after_update.free_queue[0]"


def reusable(golden: dict[str, Any]) -> str:
    step = first(golden, lambda step: step["after_schedule"]["reusable_blocks"])
    step["after_schedule"]["reusable_blocks"].pop()
    return "after_schedule.reusable_blocks"


def finished(golden: dict[str, Any]) -> str:
    golden["steps"][-1]["schedule"]["finished_req_ids"].append("nobody")
    return "schedule.finished_req_ids"


def sampled(golden: dict[str, Any]) -> str:
    name, kept = next(iter(golden["steps"][-2]["update"]["outputs"].items()))
    kept["token_ids"][-1] += 1
    return f"update.outputs.{name}.token_ids[{len(kept['token_ids']) - 1}]"


def fewer_steps(golden: dict[str, Any]) -> str:
    golden["steps"].pop()
    return "num_steps"


def end(golden: dict[str, Any]) -> str:
    golden["end"] = "max_steps"
    return "end"


def final(golden: dict[str, Any]) -> str:
    name, request = next(iter(golden["final"].items()))
    request["num_preemptions"] += 1
    return f"final.{name}.num_preemptions"


def unknown_field(golden: dict[str, Any]) -> str:
    golden["steps"][0]["schedule"]["mood"] = "good"
    return "schedule.mood"


CHANGES = [tokens, order, block, victim, status, free_queue, reusable, finished, sampled]
CHANGES += [fewer_steps, end, final, unknown_field]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_field_is_named(change: Callable[[dict[str, Any]], str]) -> None:
    golden = recording("mix_cache_thrash")
    field = change(golden)
    difference = compare(golden)
    assert difference is not None
    assert difference.field == field
    assert difference.scenario == "mix_cache_thrash"
    assert difference.ours != difference.recorded
    assert str(difference).startswith(f"step {difference.step}, {field}: ours ")


@pytest.mark.parametrize("item", [0, 1, 3])
def test_a_changed_call_to_external_kv_is_named(item: int) -> None:
    golden = recording("conn_sync")
    step = first(golden, lambda step: any(call[0] == "lookup" for call in step["connector"]))
    step["connector"][0][item] = "nobody"
    difference = compare(golden)
    assert difference is not None
    assert difference.field.startswith("connector[0]")
    assert difference.step == step["step"]


def test_other_numbers_for_the_blocks_make_no_difference() -> None:
    golden = recording("conn_delay_free")
    usable = golden["config"]["num_blocks"] - 1
    renumbered = renumber(golden, lambda number: 1 + (number + 6) % usable)
    assert renumbered["steps"] != golden["steps"]
    assert compare(renumbered) is None


def renumber(golden: dict[str, Any], new: Callable[[int], int]) -> dict[str, Any]:
    """The same recording from a pool that numbers its blocks in another way."""
    golden = copy.deepcopy(golden)
    for step in golden["steps"]:
        plan = step.get("schedule", {"new": [], "cached": []})
        lists = [entry["block_ids"] for entry in plan["new"]]
        lists += [entry["new_block_ids"] for entry in plan["cached"]]
        calls = step.get("connector", []) + step.get("update", {}).get("connector", [])
        lists += [call[2] for call in calls if call[0] != "lookup"]
        for state in (step.get("after_schedule"), step.get("after_update")):
            lists += [state["free_queue"], state["reusable_blocks"]] if state else []
        for numbers in lists:
            numbers[:] = map(new, numbers)
    return golden


def test_a_refusal_of_ours_is_a_difference() -> None:
    golden = recording("fcfs_single")
    golden["scenario"]["requests"][0]["prompt_token_ids"] = []
    difference = compare(golden)
    assert difference is not None
    assert difference.field == "error"
    assert "prompt" in difference.ours


def test_a_directory_is_summed_up(tmp_path: Path) -> None:
    changed = recording("fcfs_single")
    changed["end"] = "max_steps"
    for name, data in (("a", recording("fcfs_five")), ("b", changed)):
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(data).encode()))
    told: list[tuple[int, int]] = []
    results = replay_directory(tmp_path, lambda done, total: told.append((done, total)))
    assert [result.name for result in results] == ["fcfs_five", "fcfs_single"]
    assert told == [(1, 2), (2, 2)]
    assert summary(results) == "1 same, 1 differ"


def test_a_directory_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"holds no recording; allowed: a folder of \*"):
        replay_directory(tmp_path)
    with pytest.raises(RecordingError, match="no such directory"):
        replay_directory(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"plain text", "not a recording"),
        (gzip.compress(b"{}")[:-3], "not a recording"),
        (gzip.compress(b"[1, 2"), "not a recording"),
        (gzip.compress(b"[]"), "format: got 'list'"),
        (gzip.compress(b'{"format": "other/2"}'), "format: got 'other/2'"),
        (gzip.compress(b'{"format": "sched-oracle/1", "name": "x"}'), "lacks config, end"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, data: bytes, fault: str) -> None:
    (tmp_path / "broken.json.gz").write_bytes(data)
    with pytest.raises(RecordingError, match=fault) as caught:
        replay_directory(tmp_path)
    assert "broken.json.gz" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"num_blocks": 0}, "num_blocks: got 0"),
        ({"watermark": 2.0}, "watermark"),
        ({"policy": "lifo"}, "policy: got 'lifo', allowed: 'fcfs' or 'priority'"),
    ],
)
def test_a_config_that_cannot_be_built_is_named(
    tmp_path: Path, change: dict[str, Any], fault: str
) -> None:
    golden = recording("fcfs_single")
    golden["config"] |= change
    (tmp_path / "odd.json.gz").write_bytes(gzip.compress(json.dumps(golden).encode()))
    with pytest.raises(RecordingError, match=fault) as caught:
        replay_directory(tmp_path)
    assert "odd.json.gz" in str(caught.value)
