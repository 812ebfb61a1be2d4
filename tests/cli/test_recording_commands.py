from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from framework import SchedulerConfig
from framework.study.run import simulate_policy
from framework.study.synthetic import make_workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

CONFIG = SchedulerConfig(num_blocks=24, block_size=8, max_num_seqs=6, max_num_batched_tokens=48)


@pytest.fixture
def recordings(tmp_path: Path) -> tuple[Path, Path]:
    """One workload under fcfs and under srpt."""
    spec = "poisson:rate=30,n=16,prompt=uniform(5,60),output=uniform(2,30),max_len=150"
    one, other = tmp_path / "fcfs.hw", tmp_path / "srpt.hw"
    workload = make_workload(spec, seed=5)
    simulate_policy(workload, ["fcfs"], config=CONFIG, record=one)
    simulate_policy(workload, ["srpt", "oracle"], config=CONFIG, record=other)
    return one, other


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_replay_in_virtual_time(
    headway: Callable[..., Result], recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    result = headway("replay", recordings[0], "--json", tmp_path / "out.json")
    assert result.exit_code == 0 and "the same to the bit in virtual time" in result.stdout
    assert read(tmp_path / "out.json")["parting"] is None


def test_replay_on_a_model(
    headway: Callable[..., Result], recordings: tuple[Path, Path], model_directory: Path
) -> None:
    result = headway("replay", recordings[1], "--model", model_directory)
    assert result.exit_code == 0, result.output
    assert f"the same to the bit on {model_directory}, which sampled" in result.stdout


def test_a_replay_under_another_stack_parts(
    headway: Callable[..., Result], recordings: tuple[Path, Path]
) -> None:
    result = headway("replay", recordings[0], "--stack", "srpt+oracle")
    assert result.exit_code == 1 and "recorded" in result.stdout and "replayed" in result.stdout


def test_diff_shows_where_two_policies_part(
    headway: Callable[..., Result], recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    result = headway("diff", *recordings, "--json", tmp_path / "out.json")
    assert result.exit_code == 1 and "they part at step" in result.stdout
    assert "free blocks" in result.stdout and "srpt.hw: " in result.stdout
    assert len(read(tmp_path / "out.json")["steps"]) == 2
    assert headway("diff", recordings[0], recordings[0]).exit_code == 0


def test_explain_tells_a_life(
    headway: Callable[..., Result], recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    result = headway("explain", recordings[0], "r3", "--json", tmp_path / "out.json")
    assert result.exit_code == 0 and result.stdout.startswith("r3 arrived at ")
    assert read(tmp_path / "out.json")["sentences"] == result.stdout.splitlines()


def test_timeline_writes_a_trace(
    headway: Callable[..., Result], recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    result = headway("timeline", recordings[0])
    assert result.exit_code == 0 and "events in" in result.stdout
    assert read(tmp_path / "fcfs.trace.json")["traceEvents"]


@pytest.mark.parametrize("command", ["replay", "diff", "explain", "timeline"])
def test_what_is_no_recording_is_bad_input(
    headway: Callable[..., Result], command: str, tmp_path: Path
) -> None:
    (tmp_path / "no.hw").write_text("no")
    rest = {"diff": [tmp_path / "no.hw"], "explain": ["r1"]}.get(command, [])
    result = headway(command, tmp_path / "no.hw", *rest)
    assert result.exit_code == 2 and "cannot be read" in result.output


def test_compare_records_each_run(headway: Callable[..., Result], tmp_path: Path) -> None:
    spec = "poisson:rate=30,n=12,prompt=60,output=9"
    options = ("--workload", spec, "--jobs", 1, "--record", tmp_path / "runs", "--seeds", 2)
    assert headway("compare", "fcfs", "srpt+oracle", *options).exit_code == 0
    files = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert files == [f"{name}-seed{seed}.hw" for name in ("fcfs", "srpt+oracle") for seed in (0, 1)]
    assert headway("replay", tmp_path / "runs" / "fcfs-seed1.hw").exit_code == 0
