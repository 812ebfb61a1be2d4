"""Job: one run that can be sent to another process, and what comes back of it as plain data."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from framework.errors import HeadwayError
from framework.stack import parse_stack
from framework.study.curves import curves_of
from framework.study.run import simulate_policy
from framework.study.shaping import repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from framework.config import SchedulerConfig
    from framework.latency import LinearLatency
    from framework.study.meter import Meter
    from framework.study.run import Run
    from framework.study.source import Source
    from framework.study.workload import Workload


@frozen(kw_only=True)
class Job:
    """One policy on one workload.

    Attributes:
        label: what the result says of it: policy, seed, load, ...
        policy: a stack as text, such as 'fcfs+chunked_prefill(cap=256)'.
        source, seed, resample, factor: make the workload; see `Source.workload`.
        config: the limits. latency: how long steps take.
        repeat_to: so many requests, by repetition; 0 = as many as there are.
        horizon: seconds after which it is cut, or None.
        runner: options of the simulated runner.
        has_curves: whether its curves are wanted.
        record: the file in which every step is kept, or None.
    """

    label: Mapping[str, Any]
    policy: str
    source: Source
    config: SchedulerConfig
    latency: LinearLatency
    seed: int = 0
    resample: bool = False
    factor: float = 1.0
    repeat_to: int = 0
    horizon: float | None = None
    runner: Mapping[str, Any] = field(factory=dict)
    has_curves: bool = False
    record: Path | None = None


@frozen(kw_only=True)
class Done:
    """What came of a job.

    Attributes:
        record: the same for equal jobs, to the byte; an entry of `runs` in a result.
        host: real times, which are not.
        error: the sentence of what went wrong, or None.
    """

    record: dict[str, Any]
    host: dict[str, Any]
    error: str | None = None


_LATEST: dict[str, Workload] = {}
"""The workload of the last job: policies take turns on one workload."""


def run_job(job: Job, on_end: Callable[[int], object] | None = None) -> Done:
    """Run it; a policy that fails is told in the record, and ends nothing else."""
    start = perf_counter()
    label = dict(job.label)
    workload = _workload(job)
    try:
        run = simulate_policy(
            workload,
            parse_stack(job.policy),
            config=job.config,
            latency=job.latency,
            tenant_weights=workload.tenant_weights,
            horizon=job.horizon,
            on_end=on_end,
            runner_options={"seed": job.seed, **job.runner},
            record=job.record,
        )
    except HeadwayError as error:
        failed = {**label, "workload": workload.digest, "error": str(error)}
        return Done(record=failed, host={**label, "error": str(error)}, error=str(error))
    seconds = perf_counter() - start
    steps = run.outcome.num_steps
    host = {
        **label,
        "wall_s": seconds,
        "requests_per_wall_s": len(workload.arrivals) / seconds,
        "scheduler_us_per_step": run.scheduler_s / steps * 1e6 if steps else None,
    }
    return Done(record=_record(job, workload, run), host=host)


def _record(job: Job, workload: Workload, run: Run) -> dict[str, Any]:
    record = {
        **job.label,
        "workload": workload.digest,
        "num_requests": len(workload.arrivals),
        "oracles": list(run.oracles),
        "outcome": run.outcome.as_dict(),
        "backlog_per_s": backlog_slope(run.meter),
        "errors": dict(sorted(run.meter.errors.items())[:10]),
        "num_errors": len(run.meter.errors),
    }
    if job.has_curves:
        record["curves"] = curves_of(run.meter)
    return record


def backlog_slope(meter: Meter) -> float | None:
    """Requests a second by which the waiting queue grows while requests arrive (least squares).

    Near 0 below saturation; above it a run has no steady state, and this says how far.
    """
    end = max(meter.columns["arrival"], default=0.0)
    points = [(time, waiting) for time, _, _, waiting, _ in meter.series.points if time <= end]
    if len(points) < 2:
        return None
    mean_time = sum(time for time, _ in points) / len(points)
    mean_waiting = sum(waiting for _, waiting in points) / len(points)
    spread = sum((time - mean_time) ** 2 for time, _ in points)
    joint = sum((time - mean_time) * (waiting - mean_waiting) for time, waiting in points)
    return joint / spread if spread else None


def _workload(job: Job) -> Workload:
    key = repr((job.source, job.seed, job.resample, job.factor, job.repeat_to))
    if key not in _LATEST:
        made = job.source.workload(job.seed, resample=job.resample, factor=job.factor)
        if job.repeat_to:
            made = repeat(made, job.repeat_to)
        _LATEST.clear()
        _LATEST[key] = made
    return _LATEST[key]
