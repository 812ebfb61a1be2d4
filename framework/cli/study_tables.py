"""How policies differ in virtual time: the tables of `headway compare` and `headway capacity`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from framework.cli.report import show_table
from framework.study.compare import is_run_of, num_unserved
from framework.study.outcome import SERVED
from framework.study.stats import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework.study.stats import Metric

SHOWN = (
    *("ttft_p50", "ttft_p99", "tpot_p50", "itl_p99", "longest_gap", "e2e_mean", "goodput"),
    *("attainment", "num_preemptions", "recompute_tax", "prefix_hit_rate", "jain", "service_gap"),
)
AT_CAPACITY = ("queueing_p50", *SHOWN[:6])
BY_NAME = {metric.name: metric for metric in METRICS}
MOST_COLUMNS = 6
ENOUGH_FOR_P99 = 1000


def show_counts(result: Mapping[str, Any]) -> None:
    """What the workload is, and what was cut on the way."""
    workload = result["workload"]
    rate = "" if workload["rate"] is None else f", {workload['rate']:.2f} requests/s"
    click.echo(f"{workload['name']}: {workload['num_requests']} requests{rate}")
    for what, count in workload["counts"].items():
        click.echo(f"  {what}: {count}")
    if workload["resampled"]:
        click.echo("  gaps between arrivals are drawn again for each seed, in blocks")
    if result["capacity"] is not None:
        click.echo(f"  a load of 1 is {result['capacity']['rate']:.2f} requests/s")


def show_study(result: Mapping[str, Any]) -> None:
    """A table for each load, and with several seeds one of the paired differences."""
    for load in result["loads"]:
        at = "" if load is None else f" at a load of {load:g}"
        entries = [each for each in result["summary"] if each["load"] == load]
        hidden = () if result["workload"]["has_slo"] else ("attainment",)
        seeds = len(result["seeds"])
        over = f", mean and 95 % t-interval over {seeds} seeds" if seeds > 1 else ""
        _show(f"{result['workload']['name']}{at}{over}", entries, _estimate, hidden)
        pairs = [each for each in result["paired"] if each["load"] == load]
        if seeds > 1 and pairs:
            title = f"Differences to {pairs[0]['baseline']}{at}, paired by seed (* = not 0)"
            _show(title, pairs, _difference, hidden)
    samples = [
        each["metrics"]["ttft_p99"]["samples"]
        for each in result["summary"]
        if "ttft_p99" in each["metrics"]
    ]
    if samples and min(samples) < ENOUGH_FOR_P99:
        click.echo(f"TTFT p99 is of {min(samples)} requests; below {ENOUGH_FOR_P99} it says little")
    for run in result["runs"]:
        if "error" in run:
            click.echo(f"{run['policy']} failed with seed {run['seed']}: {run['error']}")
    for entry in result["summary"]:
        runs = [run for run in result["runs"] if is_run_of(run, entry)]
        if any(map(num_unserved, runs)):
            click.echo(_unserved(entry, runs))


def _unserved(entry: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    """What became of requests that no latency counts, and why one was refused."""
    lost: Counter[str] = Counter()
    for run in runs:
        reasons = run["outcome"]["reasons"]
        lost.update({name: count for name, count in reasons.items() if name not in SERVED})
        lost["not arrived"] += run["num_requests"] - sum(reasons.values())
    at = "" if entry["load"] is None else f" at a load of {entry['load']:g}"
    total = sum(run["num_requests"] for run in runs)
    told = ", ".join(f"{count} {name}" for name, count in sorted(lost.items()) if count)
    why = next((each for run in runs for each in run["errors"].values()), None)
    return (
        f"{entry['policy']} left {lost.total()} of {total} requests unserved{at} ({told}); "
        "latencies are of the others" + (f": {why}" if why else "")
    )


def show_sensitivity(sensitivity: Mapping[str, Any]) -> None:
    """One row a metric: the ranking, and what turned around."""
    rows = []
    for name, found in sensitivity["metrics"].items():
        turned = [
            f"{' / '.join(each['pair'])} with {each['term']} x {each['factor']:g}"
            for each in found["turned"]
        ]
        survives = "yes" if found["survives"] else "no"
        if len(found["ranking"]) < 2:
            survives = "-"
        rows.append(
            (BY_NAME[name].title, " < ".join(found["ranking"]), survives, "; ".join(turned))
        )
    columns = ("by", "ranking, lowest first", "survives", "turned around")
    show_table(
        "Ranking with each coefficient at +-20 % (differences below 1 % are ties)", columns, rows
    )


def show_capacities(capacities: Mapping[str, Mapping[str, Any]]) -> None:
    """One column a policy: the rate it holds, and what it is like there."""
    at = {
        policy: next(
            (each["metrics"] for each in found["trials"] if each["rate"] == found["rate"]), None
        )
        for policy, found in capacities.items()
    }
    rows = [
        ("requests/s", *(_rate(found["rate"]) for found in capacities.values())),
        ("saturated", *(_rate(found["saturated_rate"]) for found in capacities.values())),
    ]
    for name in AT_CAPACITY:
        metric = BY_NAME[name]
        values = (None if found is None else found[name] for found in at.values())
        rows.append((metric.title, *(_number(metric, value) for value in values)))
    click.echo("\nHighest rate that keeps the promise, and latencies at it")
    show_table("", ("", *capacities), rows, numbers=True)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _show(
    title: str, entries: Sequence[Mapping[str, Any]], cell: Any, hidden: Sequence[str]
) -> None:
    """One row a metric, one column a policy; many policies make several tables."""
    for start in range(0, len(entries), MOST_COLUMNS):
        some = entries[start : start + MOST_COLUMNS]
        rows = [
            (metric.title, *(cell(metric, each["metrics"].get(name)) for each in some))
            for name in SHOWN
            for metric in (BY_NAME[name],)
            if name not in hidden and any(_has(name, each["metrics"]) for each in entries)
        ]
        click.echo(f"\n{title}")  # a table would fold it to its own width
        show_table("", ("", *(each["policy"] for each in some)), rows, numbers=True)


def _has(name: str, metrics: Mapping[str, Any]) -> bool:
    """A gap between tenants means something where there are two of them."""
    return name in metrics and (name != "service_gap" or "jain" in metrics)


def _estimate(metric: Metric, found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    text = _number(metric, found["mean"])
    if found["low"] is None:
        return text
    return f"{text} ±{(found['high'] - found['low']) / 2 * metric.scale:.{metric.digits}f}"


def _difference(metric: Metric, found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    text = f"{found['mean'] * metric.scale:+.{metric.digits}f}"
    if found["low"] is None:
        return text
    mark = "*" if found["low"] > 0 or found["high"] < 0 else ""
    return f"{text} ±{(found['high'] - found['low']) / 2 * metric.scale:.{metric.digits}f}{mark}"


def _number(metric: Metric, value: float | None) -> str:
    return "-" if value is None else f"{value * metric.scale:.{metric.digits}f}"
