from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from framework import ConfigError
from framework.study.record_places import record_jobs
from framework.study.source import Source
from framework.study.study import Study

if TYPE_CHECKING:
    from pathlib import Path

    from framework.study.job import Job


def jobs(*policies: str, seeds: tuple[int, ...] = (0,), loads: tuple[float, ...] = ()) -> list[Job]:
    study = Study(policies=policies, source=Source(text="poisson:n=5"), seeds=seeds, loads=loads)
    return [
        study.job(policy, seed, load)
        for load in loads or (None,)
        for seed in seeds
        for policy in policies
    ]


def names(given: list[Job], where: Path) -> list[str]:
    return [job.record.name for job in record_jobs(given, where) if job.record is not None]


def test_files_are_named_by_what_tells_the_runs_apart(tmp_path: Path) -> None:
    assert names(jobs("fcfs", "srpt+oracle"), tmp_path) == ["fcfs.hw", "srpt+oracle.hw"]
    assert names(jobs("fcfs", seeds=(0, 1)), tmp_path) == ["fcfs-seed0.hw", "fcfs-seed1.hw"]
    (one, other) = names(jobs("priority(displace=True)", loads=(0.5, 1.1)), tmp_path)
    assert (one, other) == (
        "priority_displace=True-load0.5.hw",
        "priority_displace=True-load1.1.hw",
    )


def test_a_policy_from_a_file_makes_no_hidden_file(tmp_path: Path) -> None:
    (job,) = jobs("fcfs")
    elsewhere = [evolve(job, policy=policy) for policy in ("./mine.py:FCFS", "../a b.py:FCFS")]
    assert names(elsewhere, tmp_path) == ["mine.py_FCFS.hw", "a_b.py_FCFS.hw"]


def test_a_single_run_may_name_its_file(tmp_path: Path) -> None:
    (job,) = record_jobs(jobs("fcfs"), tmp_path / "run.hw")
    assert job.record == tmp_path / "run.hw"
    with pytest.raises(ConfigError, match="a folder, since there are 2 runs"):
        record_jobs(jobs("fcfs", "srpt"), tmp_path / "run.hw")


def test_the_folder_is_made(tmp_path: Path) -> None:
    record_jobs(jobs("fcfs"), tmp_path / "new" / "place")
    assert (tmp_path / "new" / "place").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"):
        record_jobs(jobs("fcfs"), tmp_path / "file" / "place")
