"""Required fields: "Trace Event Format", the Chromium project."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from framework import ConfigError, SchedulerConfig
from framework.study.recorded import Recorded
from framework.study.run import simulate_policy
from framework.study.synthetic import make_workload
from framework.study.timeline import write_timeline

if TYPE_CHECKING:
    from pathlib import Path

REQUIRED = {
    "M": {"name", "ph", "pid", "tid", "args"},
    "X": {"name", "ph", "pid", "tid", "ts", "dur"},
    "i": {"name", "ph", "pid", "tid", "ts", "s"},
    "C": {"name", "ph", "pid", "ts", "args"},
}
SPEC = "poisson:rate=30,n=40,prompt=lognormal(200,0.7),output=lognormal(30,0.8)"


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    config = SchedulerConfig(num_blocks=80, max_num_seqs=6, max_num_batched_tokens=256)
    workload = make_workload(SPEC, seed=1)
    simulate_policy(workload, ["fcfs"], config=config, record=tmp_path / "run.hw")
    return Recorded(tmp_path / "run.hw")


@pytest.fixture
def events(recorded: Recorded, tmp_path: Path) -> list[dict[str, Any]]:
    count = write_timeline(recorded, tmp_path / "out.json")
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["displayTimeUnit"] == "ms" and len(data["traceEvents"]) == count
    found: list[dict[str, Any]] = data["traceEvents"]
    return found


def test_every_event_has_the_fields_of_its_phase(events: list[dict[str, Any]]) -> None:
    assert {event["ph"] for event in events} == set(REQUIRED)
    for event in events:
        assert event.keys() >= REQUIRED[event["ph"]]
        assert type(event["pid"]) is int and event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
        assert event.get("s", "t") in ("g", "p", "t")
        if event["ph"] == "C":
            assert all(type(value) is int and value >= 0 for value in event["args"].values())


def test_every_request_has_a_track_whose_slices_do_not_overlap(
    events: list[dict[str, Any]],
) -> None:
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert len(set(names)) == len(names) == 41 == len(tracks)
    for slices in tracks.values():
        slices.sort()
        pairs = pairwise(slices)
        assert all(before[1] <= after[0] + 0.01 for before, after in pairs)


def test_slices_hold_every_token(events: list[dict[str, Any]], recorded: Recorded) -> None:
    drawn = sum(
        event["args"].get("tokens", 0) for event in events if event["name"] in ("prefill", "decode")
    )
    assert drawn == sum(sum(step.get("plan", {}).values()) for step in recorded.steps())


def test_counters_show_budget_blocks_and_queue(events: list[dict[str, Any]]) -> None:
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters == {"budget", "queue", "running", "KV blocks"}
    assert any(event["name"] == "preempted: recompute" for event in events)


def test_a_timeline_may_be_compressed(recorded: Recorded, tmp_path: Path) -> None:
    count = write_timeline(recorded, tmp_path / "out.json.gz")
    data = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))
    assert len(data["traceEvents"]) == count


def test_a_timeline_does_not_overwrite_its_recording(recorded: Recorded) -> None:
    before = recorded.path.read_bytes()
    with pytest.raises(ConfigError, match="another file than the recording"):
        write_timeline(recorded, recorded.path)
    assert recorded.path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_told(recorded: Recorded, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        write_timeline(recorded, tmp_path / "absent" / "out.json")
