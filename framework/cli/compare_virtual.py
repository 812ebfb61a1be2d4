"""The same workload under several policies in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framework.cli.report import headline, study_progress, write_json
from framework.cli.study_tables import show_counts, show_sensitivity, show_study
from framework.cli.workloads import limits_of
from framework.latency import load_latency
from framework.study.compare import compare_policies
from framework.study.pool import num_processors
from framework.study.study import Study

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from framework.cli.workloads import Figures, Replication, WorkloadOptions


def compare_in_virtual_time(
    policies: Sequence[str],
    json_path: Path | None,
    *,
    workload: WorkloadOptions,
    replication: Replication,
    figures: Figures,
    limits: Mapping[str, Any],
) -> int:
    """Run a study, show it and write it; returns the exit status."""
    fields, seed = limits_of(limits)
    study = Study(
        policies=policies,
        source=workload.source(fields["max_model_len"]),
        seeds=range(seed, seed + replication.seeds),
        loads=replication.load,
        capacity=replication.capacity,
        limits=fields,
        latency=load_latency(workload.latency),
        horizon=workload.horizon,
        runner={"noise": workload.noise} if workload.noise else {},
        is_sensitive=replication.sensitivity,
    )
    with study_progress("requests") as tell:
        result, host = compare_policies(
            study,
            num_processes=workload.jobs or num_processors(),
            progress=tell,
            record=figures.record,
        )
    try:
        _write(result, host, json_path, figures)
    finally:  # neither is lost where the other cannot be written
        _show(result)
    headline(result["headline"])
    return int(any("error" in run for run in result["runs"]))


def _show(result: dict[str, Any]) -> None:
    show_counts(result)
    show_study(result)
    if result["sensitivity"] is not None:
        show_sensitivity(result["sensitivity"])


def _write(
    result: dict[str, Any], host: dict[str, Any], json_path: Path | None, figures: Figures
) -> None:
    write_json(json_path, result)
    if json_path is not None:
        write_json(json_path.with_suffix(".host.json"), host)
    if figures.html is not None or figures.png is not None:
        from framework.study.report import (  # noqa: PLC0415  (plotting is slow to import)
            write_figures,
            write_report,
        )

        if figures.html is not None:
            write_report(result, figures.html)
        if figures.png is not None:
            write_figures(result, figures.png)
