"""Where the recordings of several runs go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attrs import evolve

from framework.errors import ConfigError, bad_field

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from framework.study.job import Job

SUFFIX = ".hw"


def record_jobs(jobs: Sequence[Job], where: Path) -> list[Job]:
    """The jobs, each with a file of its own, named by its policy, seed and load.

    Args:
        jobs: runs to come.
        where: a folder, which is made; or, of a single run, a file that ends in .hw.

    Raises:
        ConfigError: it is a file for several runs, or cannot be made.
    """
    if where.suffix == SUFFIX:
        if len(jobs) != 1:
            raise bad_field("record", str(where), f"a folder, since there are {len(jobs)} runs")
        return [evolve(jobs[0], record=where)]
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"record: the folder {where} cannot be made: {error}") from error
    places = [where / f"{_name(job, jobs)}{SUFFIX}" for job in jobs]
    if len(set(places)) != len(jobs):
        raise bad_field("record", str(where), "policies whose names make files that differ")
    return [evolve(job, record=place) for job, place in zip(jobs, places, strict=True)]


def _name(job: Job, jobs: Sequence[Job]) -> str:
    """Its policy, and what else tells it from the others."""
    parts = [re.sub(r"[^\w.+=-]+", "_", job.policy).lstrip("._").rstrip("_")]
    for what in ("seed", "load"):
        if len({each.label.get(what) for each in jobs}) > 1:
            parts.append(f"{what}{job.label[what]:g}")
    return "-".join(parts)
