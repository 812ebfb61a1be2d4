"""Options of studies in virtual time; `workloads` has the records they are gathered into."""

from __future__ import annotations

from pathlib import Path

import click

from framework.cli.options import Command, apply_options, writable

_WORKLOAD = (
    click.option(
        "--workload",
        metavar="FILE|SPEC",
        help="A trace (CSV or JSONL, plain or .gz), or a SPEC such as "
        "poisson:rate=8,n=1000,prompt=lognormal(1500,0.7),output=lognormal(200,1.0); "
        "kinds: poisson, gamma, constant, closed.",
    ),
    click.option("--first", type=int, metavar="N", help="Only the first N requests."),
    click.option(
        "--window",
        type=(float, float),
        metavar="START END",
        help="Only rows of a trace in these seconds from its first row.",
    ),
    click.option(
        "--time-scale",
        type=float,
        default=1.0,
        show_default=True,
        help="Gaps are multiplied by it: 0.5 is twice the load.",
    ),
    click.option(
        "--columns",
        metavar="MAP",
        help="Columns of a trace: time=...,prompt=...,output=...[,tenant=...,priority=...].",
    ),
    click.option(
        "--trace-format",
        help="azure, burstgpt, mooncake, bailian or plain.  [default: recognised by its columns]",
    ),
    click.option(
        "--too-long",
        type=click.Choice(("clip", "drop")),
        default="clip",
        show_default=True,
        help="What to do with requests of a trace longer than --max-model-len; they are counted.",
    ),
    click.option("--tenants", help="A number of them, or shares such as a*3|b."),
    click.option("--weights", help="Due service of each tenant for fairness, such as 1|2."),
    click.option("--priorities", help="Priorities by share, such as 0*3|5; lower is more urgent."),
    click.option("--slo", help="SLOs by share, seconds TTFT/TPOT: 1/0.05*2|20/-|-/-."),
    click.option("--slo-ttft", type=float, metavar="S", help="Promised time to the first token."),
    click.option("--slo-tpot", type=float, metavar="S", help="Promised mean time of each other."),
    click.option(
        "--latency",
        default="llama3-8b-a100",
        show_default=True,
        metavar="NAME|FILE|MODEL@GPU",
        help="How long steps take: a model that comes with Headway, a JSON file, or a model's "
        "config.json (or its directory) and a GPU, such as my-model@h200.",
    ),
    click.option("--horizon", type=float, metavar="S", help="Cut each run at this virtual time."),
    click.option(
        "--noise",
        type=click.FloatRange(0, 2),
        default=0.0,
        show_default=True,
        help="Standard deviation of the logarithm of a factor on each step's time.",
    ),
    click.option(
        "--jobs", type=click.IntRange(1), help="Processes.  [default: as many as processors]"
    ),
)
_REPLICATION = (
    click.option(
        "--seeds",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        metavar="N",
        help="Replications; means then come with 95 % t-intervals, and differences are paired. "
        "Of a trace they vary classes and draw its gaps again.",
    ),
    click.option(
        "--load",
        type=float,
        multiple=True,
        metavar="SHARE...",
        help="Loads as shares of the capacity, such as .5 .7 .85 .95 1.1; the capacity is the rate "
        "at which the first POLICY ends requests that come all at once.",
    ),
    click.option(
        "--capacity", type=float, metavar="RATE", help="Requests a second that are a load of 1."
    ),
    click.option(
        "--sensitivity",
        is_flag=True,
        help="Also run with each coefficient of the latency model at +-20 %, and say whether the "
        "ranking survives.",
    ),
)
_FIGURES = (
    click.option(
        "--html",
        type=click.Path(path_type=Path),
        callback=writable,
        metavar="FILE",
        help="Also write a report for a browser.",
    ),
    click.option(
        "--png",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Also write its figures as PNG.",
    ),
    click.option(
        "--record",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Also keep every step of each run in a file of DIR, for replay, diff, explain and "
        "timeline; of a single run, in a file that ends in .hw.",
    ),
)


def workload_options(command: Command) -> Command:
    """Add the options of `WorkloadOptions`."""
    return apply_options(_WORKLOAD, command)


def replication_options(command: Command) -> Command:
    """Add the options of `Replication`."""
    return apply_options(_REPLICATION, command)


def figure_options(command: Command) -> Command:
    """Add the options of `Figures`."""
    return apply_options(_FIGURES, command)
