"""`headway compare`: several policies on a real model, or on a workload in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from framework.cli.compare_model import compare_on_model
from framework.cli.compare_virtual import compare_in_virtual_time
from framework.cli.options import (
    Limits,
    Loading,
    Sampling,
    common_options,
    gather,
    limit_options,
    loading_options,
    sampling_options,
)
from framework.cli.workload_options import figure_options, replication_options, workload_options
from framework.cli.workloads import (
    Figures,
    ManyNumbers,
    Replication,
    WorkloadOptions,
    given,
    refuse_given,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FOR_MODELS = (Loading, Sampling)
FOR_WORKLOADS = (WorkloadOptions, Replication, Figures)


@click.command(
    "compare",
    cls=ManyNumbers,
    epilog="Example: headway compare fcfs 'priority(displace=True)' fcfs+spec_decode "
    "--prompts demo --num-blocks 160; "
    "headway compare fcfs vtc srpt+history_quantile --workload poisson:rate=8,n=2000 --tenants 4 "
    "--seeds 10 --load .7 .95",
)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option(
    "--prompts",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSONL of prompts, or `demo` for the ones that come with Headway; on a real model.",
)
@workload_options
@replication_options
@figure_options
@loading_options
@limit_options
@sampling_options
@common_options
@click.pass_context
def command(
    context: click.Context,
    /,
    policies: tuple[str, ...],
    file: Path | None,
    json_path: Path | None,
    **options: Any,
) -> int:
    """Show how each POLICY serves the same prompts, or the same workload in virtual time.

    A POLICY is a plugin or several: name, name(option=value), module:attribute, file.py:Name,
    one+another. With --prompts a model is loaded once; each policy starts with an empty cache and
    sees every prompt arrive in real time. With --workload nothing is loaded: steps take what a
    latency model says, the limits are those of a server (256 requests, 2048 tokens a step, the
    whole KV memory) unless given, and equal arguments give equal results to the byte. Latencies
    count from arrival.
    """
    if (file is None) == (options["workload"] is None):
        raise click.UsageError("give --prompts (a real model) or --workload (virtual time)")
    if file is not None:
        refuse_given(context, FOR_WORKLOADS, "it goes with --workload, not with --prompts")
        return _on_model(policies, file, json_path, options)
    refuse_given(context, FOR_MODELS, "it goes with --prompts; a --workload needs no model")
    return compare_in_virtual_time(
        policies,
        json_path,
        workload=gather(WorkloadOptions, options),
        replication=gather(Replication, options),
        figures=gather(Figures, options),
        limits=given(context, Limits),
    )


def _on_model(
    policies: Sequence[str], file: Path, json_path: Path | None, options: dict[str, Any]
) -> int:
    return compare_on_model(
        policies,
        file,
        json_path,
        limits=gather(Limits, options),
        loading=gather(Loading, options),
        sampling=gather(Sampling, options),
    )
