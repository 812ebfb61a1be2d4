from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from framework import ConfigError, SchedulerConfig, StallError, hookimpl
from framework.study.run import simulate_policy
from framework.study.synthetic import make_workload

ROOT = Path(__file__).parents[2]
SPEC = "poisson:rate=20,n=60,prompt=lognormal(200,0.7),output=lognormal(40,0.8),tenants=2"
CONFIG = SchedulerConfig(num_blocks=80, max_num_seqs=8, max_num_batched_tokens=512)


def record(path: Path, *plugins: Any, **options: Any) -> list[dict[str, Any]]:
    simulate_policy(
        make_workload(SPEC, seed=3), plugins or ["fcfs"], config=CONFIG, record=path, **options
    )
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_every_step_is_kept(tmp_path: Path) -> None:
    header, *steps, last = record(tmp_path / "run.hw")
    assert header["format"] == 1 and header["config"]["num_blocks"] == 80
    assert [step["step"] for step in steps] == list(range(last["steps"]))
    assert len(header["workload"]["arrivals"]) == 60
    assert sorted(name for step in steps for name, _ in step.get("arrived", ())) == sorted(
        row[0] for step in steps for row in step.get("ended", ())
    )


def test_a_step_says_who_was_refused_who_lost_its_place_and_what_was_left(tmp_path: Path) -> None:
    _, *steps, _ = record(tmp_path / "run.hw")
    refusals = {why for step in steps for why in step.get("refused", {}).values()}
    assert {"BUDGET", "BLOCKS"} <= refusals <= {"SLOT", "BLOCKS", "BUDGET", "GATE"}
    victims = [victim for step in steps for victim in step.get("victims", ())]
    assert victims and all(mode == "recompute" and lost > 0 for _, mode, lost, _ in victims)
    assert not any(displaced for *_, displaced in victims)
    for step in steps:
        assert step["left"] == 512 - sum(step.get("plan", {}).values())
        assert 0 <= step["used"] <= 79 and len(step.get("queue", ())) <= step["waiting"]


def test_a_request_that_makes_room_for_a_waiting_one_is_displaced(tmp_path: Path) -> None:
    _, *steps, _ = record(tmp_path / "run.hw", "srpt(mode='recompute')", "oracle")
    assert any(displaced for step in steps for *_, displaced in step.get("victims", ()))


def test_recording_changes_no_outcome(tmp_path: Path) -> None:
    workload = make_workload(SPEC, seed=3)
    bare = simulate_policy(workload, ["srpt", "oracle"], config=CONFIG)
    kept = simulate_policy(workload, ["srpt", "oracle"], config=CONFIG, record=tmp_path / "run.hw")
    assert bare.outcome == kept.outcome


def test_equal_seeds_give_equal_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.study.test_recording import record; "
        "record(Path(sys.argv[1]), 'srpt', 'oracle')"
    )
    files = [tmp_path / "one.hw", tmp_path / "two.hw"]
    for number, file in enumerate(files, 1):
        environment = {**os.environ, "PYTHONHASHSEED": str(number)}
        subprocess.run(
            [sys.executable, "-c", code, str(file)], check=True, env=environment, cwd=ROOT
        )
    assert files[0].read_bytes() == files[1].read_bytes()


def test_nothing_is_kept_in_memory_once_it_is_written() -> None:
    kept: list[int] = []
    recorded = simulate_policy(
        make_workload(SPEC, seed=3), config=CONFIG, record=lambda line: kept.append(len(line))
    )
    (recording,) = [each for name, each in recorded.scheduler.plugins if name == "step_recording"]
    lists = [value for value in vars_of(recording) if isinstance(value, list)]
    assert len(kept) == recording.num_steps + 2
    assert lists and all(len(value) <= 8 for value in lists)


def vars_of(record: Any) -> list[Any]:
    return [getattr(record, name) for name in record.__slots__ if hasattr(record, name)]


class Lazy:
    @hookimpl
    def order_running(self) -> tuple[()]:
        return ()


def test_a_run_that_fails_leaves_a_recording_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(StallError):
        record(tmp_path / "run.hw", Lazy())
    *_, last = map(json.loads, gzip.decompress((tmp_path / "run.hw").read_bytes()).splitlines())
    assert last["failed"].startswith("StallError: step ")


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        record(tmp_path / "absent" / "run.hw")
