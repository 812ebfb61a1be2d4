"""`compare_policies`: several policies on the same workloads in virtual time, and what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from attrs import evolve

from framework.stack import parse_stack
from framework.study.capacity import saturated_rate
from framework.study.outcome import SERVED
from framework.study.pool import run_jobs
from framework.study.record_places import record_jobs
from framework.study.result import FORMAT, describe_policy, headway_version, host_times
from framework.study.run import default_config
from framework.study.sensitivity import FACTORS, judge_ranking, variations
from framework.study.source import rate_of, rate_to_vary
from framework.study.stats import best_of, pair_runs, summarise_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from framework.study.job import Done, Job
    from framework.study.study import Study
    from framework.study.workload import Workload


def compare_policies(
    study: Study,
    *,
    num_processes: int = 1,
    progress: Callable[[int, int], object] | None = None,
    record: Path | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a study.

    Args:
        study: what is compared.
        num_processes: runs at once; above 1, the caller's main module must be importable.
        progress: told (requests that have just ended, requests in all).
        record: the folder in which every run is recorded, or the file of a single run.

    Returns:
        The result, as `result` describes it, and the real times.

    Raises:
        ConfigError, PluginError: something of the study is wrong.
    """
    workload = study.source.workload(study.seeds[0], resample=study.resamples)
    capacity = _capacity(study, workload)
    factors = _factors(study, workload, capacity)
    jobs = [
        study.job(policy, seed, load, factor)
        for load, factor in factors
        for seed in study.seeds
        for policy in study.policies
    ]
    if record is not None:
        jobs = record_jobs(jobs, record)
    varied = _varied(study, *factors[0]) if study.is_sensitive else []
    total = len(workload.arrivals) * (len(jobs) + len(varied))
    done = run_jobs(
        [*jobs, *varied],
        num_processes,
        None if progress is None else lambda count: progress(count, total),
    )
    runs = [each.record for each in done[: len(jobs)]]
    result = {
        "format": FORMAT,
        "headway": headway_version(),
        "policies": [describe_policy(policy, parse_stack(policy)) for policy in study.policies],
        "workload": _describe_workload(study, workload),
        "config": attrs.asdict(default_config(study.latency, **study.limits)),
        "drafts": _drafts(study),
        "latency": study.latency.as_dict(),
        "runner": dict(study.runner),
        "seeds": list(study.seeds),
        "loads": [load for load, _ in factors],
        "capacity": capacity,
        "horizon_s": study.horizon,
        "runs": runs,
        "summary": summarise_runs(runs),
        "paired": pair_runs(runs),
        "alike": _alike(study, runs),
        "sensitivity": _sensitivity(study, runs, done[len(jobs) :]) if varied else None,
    }
    result["headline"] = sum_up(result)
    return result, host_times([each.host for each in done])


def _capacity(study: Study, workload: Workload) -> dict[str, Any] | None:
    """What a load of 1 is; None if nobody asks."""
    if not study.loads:
        return None
    rate_to_vary(study.source, workload)
    if study.capacity is not None:
        return {"rate": study.capacity, "policy": None, "num_requests": None}
    return saturated_rate(study.job(study.policies[0], study.seeds[0], None))


def _factors(
    study: Study, workload: Workload, capacity: Mapping[str, Any] | None
) -> list[tuple[float | None, float]]:
    """(load, how many times as far apart arrivals are)."""
    if capacity is None:
        return [(None, 1.0)]
    rate = rate_of(workload)
    return [(load, rate / (load * capacity["rate"])) for load in study.loads]


def _varied(study: Study, load: float | None, factor: float) -> list[Job]:
    """The first seed and load again, with each coefficient off."""
    return [
        evolve(
            study.job(policy, study.seeds[0], load, factor),
            label={"policy": policy, "term": term, "factor": times},
            latency=latency,
            has_curves=False,
        )
        for term, times, latency in variations(study.latency)
        for policy in study.policies
    ]


def _sensitivity(
    study: Study, runs: Sequence[Mapping[str, Any]], done: Sequence[Done]
) -> dict[str, Any]:
    count = len(study.policies)
    varied = []
    for start in range(0, len(done), count):
        group = [each.record for each in done[start : start + count]]
        outcomes = {each["policy"]: each["outcome"] for each in group if "outcome" in each}
        varied.append((group[0]["term"], group[0]["factor"], outcomes))
    base = {each["policy"]: each["outcome"] for each in runs[:count] if "outcome" in each}
    return {
        "seed": study.seeds[0],
        "load": runs[0]["load"],
        "factors": list(FACTORS),
        "metrics": judge_ranking(base, varied),
    }


def _describe_workload(study: Study, workload: Workload) -> dict[str, Any]:
    rate = rate_of(workload)
    return {
        "name": workload.name,
        "source": dict(workload.source),
        "counts": dict(workload.counts),
        "num_requests": len(workload.arrivals),
        "is_trace": study.source.is_trace,
        "rate": None if rate == float("inf") else rate,
        "resampled": study.resamples,
        "has_slo": any(each.slo is not None for each in workload.arrivals),
        "tenant_weights": dict(workload.tenant_weights),
    }


def _drafts(study: Study) -> dict[str, int]:
    found = {policy: study.config(policy, 0).num_spec_tokens for policy in study.policies}
    return {policy: count for policy, count in found.items() if count}


def _alike(study: Study, runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Policies that made no difference to each other."""
    groups: dict[str, list[str]] = {}
    for policy in study.policies:
        outcomes = [each.get("outcome") for each in runs if each["policy"] == policy]
        if None not in outcomes:
            groups.setdefault(repr(outcomes), []).append(policy)
    return [group for group in groups.values() if len(group) > 1]


def num_unserved(run: Mapping[str, Any]) -> int:
    """Requests of a run that did not get their output; no latency counts them."""
    reasons = run["outcome"]["reasons"]
    served = sum(reasons.get(reason, 0) for reason in SERVED)
    return int(run["num_requests"] - served)


def is_run_of(run: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether a run is one of those that an entry of the summary is of."""
    of = (run["policy"], run["load"]) == (entry["policy"], entry["load"])
    return of and "outcome" in run


def sum_up(result: Mapping[str, Any]) -> str:
    """The headline: who is best in what, at the last load."""
    last = result["loads"][-1]
    entries = [each for each in result["summary"] if each["load"] == last]
    parts = [
        _lowest(title, *best)
        for name, title in (("e2e_mean", "mean E2E"), ("ttft_p99", "TTFT p99"))
        if (best := best_of(result["runs"], name, last)) is not None
    ]
    if last is not None and parts:
        parts[0] = f"at a load of {last:g}, {parts[0]}"
    failed = [run["policy"] for run in result["runs"] if "error" in run]
    parts += [f"{policy} failed" for policy in dict.fromkeys(failed)]
    for each in entries:
        runs = [run for run in result["runs"] if is_run_of(run, each)]
        if count := sum(num_unserved(run) for run in runs):
            total = sum(run["num_requests"] for run in runs)
            parts.append(f"{each['policy']} left {count} of {total} requests unserved")
    for group in result["alike"]:
        parts.append(f"{', '.join(group[:-1])} and {group[-1]} came out the same")
    sensitivity = result["sensitivity"]
    if sensitivity is not None:
        metrics = sensitivity["metrics"]
        lost = [name for name, found in metrics.items() if not found["survives"]]
        if all(len(found["ranking"]) < 2 for found in metrics.values()):
            return "; ".join((*parts, "there are no two policies to rank"))
        parts.append(
            f"the ranking changes with a coefficient at +-20 % ({', '.join(lost)})"
            if lost
            else "the ranking survives each coefficient at +-20 %"
        )
    return "; ".join(parts) or "nothing was run"


def _lowest(title: str, policies: Sequence[str], mean: float, is_sure: bool) -> str:
    doubt = "" if is_sure else ", which may be chance"
    return f"lowest {title}: {' = '.join(policies)} ({mean:.2f} s{doubt})"
