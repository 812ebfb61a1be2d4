"""`headway capacity`: the highest rate of a workload that a policy holds under a promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import click

from framework.cli.options import Limits, apply_options, common_options, gather, limit_options
from framework.cli.report import headline, study_progress, write_json
from framework.cli.study_tables import show_capacities
from framework.cli.workload_options import workload_options
from framework.cli.workloads import WorkloadOptions, given, limits_of
from framework.latency import load_latency
from framework.stack import parse_stack
from framework.study.capacity import Promise, find_capacity, saturated_rate
from framework.study.pool import num_processors
from framework.study.result import describe_policy, headway_version
from framework.study.study import Study

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from framework.cli.options import Command

_PROMISE = (
    click.option(
        "--itl-p99",
        type=float,
        default=0.2,
        show_default=True,
        metavar="S",
        help="Of the gaps between tokens.",
    ),
    click.option(
        "--queueing-p50",
        type=float,
        default=2.0,
        show_default=True,
        metavar="S",
        help="From arrival to first admission.",
    ),
    click.option("--ttft-p99", type=float, metavar="S", help="To the first token."),
    click.option(
        "--attainment",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Of the requests that keep their own --slo.",
    ),
)


def promise_options(command: Command) -> Command:
    """Add the options of `Promise`."""
    return apply_options(_PROMISE, command)


@click.command(
    "capacity",
    epilog="Example: headway capacity sarathi prefill_first --workload poisson:rate=4,n=2000",
)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@workload_options
@promise_options
@limit_options
@common_options
@click.pass_context
def command(
    context: click.Context, /, policies: tuple[str, ...], json_path: Path | None, **options: Any
) -> int:
    """Find the highest rate of a workload at which each POLICY keeps a promise.

    The workload's arrivals are pushed together or drawn apart until the promise just holds, to
    2 %. The promise that is there unless you give another is the one Sarathi-Serve is measured by.
    It takes a workload that is long enough to fill the queue: a few thousand requests.
    """
    if options["workload"] is None:
        raise click.UsageError("give --workload FILE|SPEC")
    workload = gather(WorkloadOptions, options)
    promise = gather(Promise, options)
    study = _study(policies, workload, given(context, Limits))
    processes = workload.jobs or num_processors()
    with study_progress("requests") as tell:
        found = {
            policy: _measure(study, policy, promise, processes, lambda count: tell(count, None))
            for policy in policies
        }
    data = _report(study, promise, found)
    try:
        write_json(json_path, data)
    finally:  # neither is lost where the other cannot be written
        show_capacities(found)
    headline(data["headline"])
    return 0


def _study(
    policies: tuple[str, ...], workload: WorkloadOptions, limits: Mapping[str, Any]
) -> Study:
    fields, seed = limits_of(limits)
    return Study(
        policies=policies,
        source=workload.source(fields["max_model_len"]),
        seeds=(seed,),
        limits=fields,
        latency=load_latency(workload.latency),
        horizon=workload.horizon,
        runner={"noise": workload.noise} if workload.noise else {},
    )


def _measure(
    study: Study, policy: str, promise: Promise, processes: int, tell: Callable[[int], object]
) -> dict[str, Any]:
    job = attrs.evolve(study.job(policy, study.seeds[0], None), has_curves=False)
    found = find_capacity(job, promise, num_processes=processes, progress=tell)
    return {**found, "saturated_rate": saturated_rate(job, tell)["rate"]}


def _report(study: Study, promise: Promise, found: Mapping[str, Any]) -> dict[str, Any]:
    workload = study.source.workload(study.seeds[0])
    return {
        "format": "headway.capacity/1",
        "headway": headway_version(),
        "policies": [describe_policy(policy, parse_stack(policy)) for policy in study.policies],
        "workload": {
            "name": workload.name,
            "source": dict(workload.source),
            "counts": dict(workload.counts),
            "num_requests": len(workload.arrivals),
            "digest": workload.digest,
        },
        "config": attrs.asdict(study.config(study.policies[0], study.seeds[0])),
        "latency": study.latency.as_dict(),
        "promise": attrs.asdict(promise),
        "capacities": dict(found),
        "headline": _sum_up(found),
    }


def _sum_up(found: Mapping[str, Any]) -> str:
    parts = []
    for policy, each in found.items():
        if each["rate"] is None:
            parts.append(f"{policy}: the promise holds at no rate")
            continue
        text = f"{policy}: {each['rate']:.2f} requests/s"
        if each["rate"] > each["saturated_rate"]:
            text += " (above what it can serve for long: take more requests)"
        parts.append(text)
    return "; ".join(parts)
