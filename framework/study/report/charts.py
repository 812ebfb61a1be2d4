"""The figures of a comparison. Each takes the result of `framework.study.result` and draws on axes.

One colour and one line style a policy throughout, so that they can be told apart in grey too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen

from framework.study.stats import METRICS, Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Result: TypeAlias = Mapping[str, Any]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31")
STYLES = ("-", "--", "-.", ":")
CDFS = {"ttft_s": "TTFT", "itl_s": "gap between tokens", "e2e_s": "end to end"}
COMPARED = ("ttft_p50", "ttft_p99", "itl_p99", "longest_gap", "e2e_mean", "goodput")
"""Metrics that get a panel of their own."""


@frozen
class Chart:
    """One figure.

    Attributes:
        name: of its file.
        title, note: what it shows, and how to read it.
        panels: functions that each draw on axes of their own.
    """

    name: str
    title: str
    note: str
    panels: Sequence[Callable[[Axes], None]]


@frozen
class Pen:
    """How a policy is drawn, everywhere."""

    colour: str
    style: str


def pens(result: Result) -> dict[str, Pen]:
    """{policy: its pen}, in the order of the comparison."""
    names = [each["policy"] for each in result["policies"]]
    return {
        name: Pen(COLOURS[place % len(COLOURS)], STYLES[place % len(STYLES)])
        for place, name in enumerate(names)
    }


def charts(result: Result) -> list[Chart]:
    """What there is to show of this comparison."""
    first = _metrics(result) if len(result["loads"]) < 2 else _against_load(result)
    found = [first] if first.panels else []
    shown = _shown(result)
    if not shown:
        return found
    load = shown[0]["load"]
    at = "" if load is None else f" at {load:g} of capacity"
    found.append(
        Chart(
            "cdf",
            f"Distributions{at}",
            "Share of requests, or of gaps, that took at most so long. First seed.",
            [_cdf(shown, pens(result), name, label) for name, label in CDFS.items()],
        )
    )
    found.append(
        Chart(
            "over-time",
            f"Memory and batch over virtual time{at}",
            "KV blocks in use, running requests and waiting requests. First seed.",
            [
                _curve(shown, pens(result), "kv_used_blocks", "KV blocks in use"),
                _curve(shown, pens(result), "running", "running requests"),
                _curve(shown, pens(result), "waiting", "waiting requests"),
            ],
        )
    )
    if any(run["curves"]["service"] for run in shown):
        found.append(
            Chart(
                "service",
                f"Service of tenants{at}",
                "Weighted tokens served up to then (1 a prompt token, 2 an output token). First "
                "seed, one panel a policy.",
                [_service(run) for run in shown],
            )
        )
    return found


def _shown(result: Result) -> list[Mapping[str, Any]]:
    """Runs with curves, at the largest load that is not overload where there are several."""
    runs = [run for run in result["runs"] if run.get("curves")]
    loads = sorted({run["load"] for run in runs if run["load"] is not None})
    if not loads:
        return runs
    below = [load for load in loads if load <= 1.0]
    chosen = below[-1] if below else loads[0]
    return [run for run in runs if run["load"] == chosen]


def _metrics(result: Result) -> Chart:
    return Chart(
        "metrics",
        "Policies side by side",
        "Mean over seeds; the whiskers are 95 % t-intervals where there are several seeds.",
        [_bars(result, metric) for metric in _compared(result)],
    )


def _compared(result: Result) -> list[Metric]:
    present = {name for row in result["summary"] for name in row["metrics"]}
    return [metric for metric in METRICS if metric.name in COMPARED and metric.name in present]


def _scaled(row: Mapping[str, Any], metric: Metric) -> tuple[float, float | None, float | None]:
    """Mean, low and high in the metric's own unit."""
    found = row["metrics"][metric.name]
    mean, low, high = (found[key] for key in ("mean", "low", "high"))
    if low is None:
        return mean * metric.scale, None, None
    return mean * metric.scale, low * metric.scale, high * metric.scale


def _bars(result: Result, metric: Metric) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        rows = [row for row in result["summary"] if metric.name in row["metrics"]]
        own = pens(result)
        for place, row in enumerate(rows):
            mean, low, high = _scaled(row, metric)
            axes.bar(place, mean, color=own[row["policy"]].colour, width=0.7)
            if low is not None and high is not None:
                spread = [[mean - low], [high - mean]]
                axes.errorbar(place, mean, yerr=spread, color="black", capsize=3)
        axes.set_xticks(range(len(rows)), [row["policy"] for row in rows], rotation=30, ha="right")
        axes.set_title(metric.title, fontsize="medium")

    return draw


def _against_load(result: Result) -> Chart:
    return Chart(
        "load",
        "Against load",
        "Load as a share of the measured capacity; mean over seeds with 95 % t-intervals.",
        [_line(result, metric) for metric in _compared(result)],
    )


def _line(result: Result, metric: Metric) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for policy, pen in pens(result).items():
            rows = [
                row
                for row in result["summary"]
                if row["policy"] == policy and metric.name in row["metrics"]
            ]
            loads, found = [row["load"] for row in rows], [_scaled(row, metric) for row in rows]
            axes.plot(
                loads,
                [mean for mean, _, _ in found],
                color=pen.colour,
                linestyle=pen.style,
                marker="o",
                markersize=3,
                label=policy,
            )
            low = [each for _, each, _ in found if each is not None]
            high = [each for _, _, each in found if each is not None]
            if len(low) == len(loads):
                axes.fill_between(loads, low, high, color=pen.colour, alpha=0.15, linewidth=0)
        axes.set_title(metric.title, fontsize="medium")
        axes.set_xlabel("load / capacity")
        axes.set_ylim(bottom=0)

    return draw


def _cdf(
    runs: Sequence[Mapping[str, Any]], own: Mapping[str, Pen], name: str, label: str
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for run in runs:
            pairs = run["curves"]["cdf"].get(name) or []
            pen = own[run["policy"]]
            values, shares = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            axes.step(
                values,
                shares,
                where="post",
                color=pen.colour,
                linestyle=pen.style,
                label=run["policy"],
            )
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("seconds")
        axes.set_title(label, fontsize="medium")

    return draw


def _curve(
    runs: Sequence[Mapping[str, Any]], own: Mapping[str, Pen], name: str, label: str
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for run in runs:
            curves, pen = run["curves"], own[run["policy"]]
            axes.plot(
                curves["time_s"],
                curves[name],
                color=pen.colour,
                linestyle=pen.style,
                linewidth=1,
                label=run["policy"],
            )
            if name == "kv_used_blocks" and curves["kv_total_blocks"]:
                axes.axhline(curves["kv_total_blocks"], color="grey", linewidth=0.8)
        axes.set_xlabel("seconds")
        axes.set_title(label, fontsize="medium")
        axes.set_ylim(bottom=0)

    return draw


def _service(run: Mapping[str, Any]) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        service = run["curves"]["service"]
        for place, (tenant, values) in enumerate(service.get("by_tenant", {}).items()):
            axes.plot(
                service["time_s"],
                values,
                color=COLOURS[place % len(COLOURS)],
                linestyle=STYLES[place // len(COLOURS) % len(STYLES)],
                label=tenant,
            )
        axes.set_xlabel("seconds")
        axes.set_title(run["policy"], fontsize="medium")
        axes.legend(fontsize="x-small")

    return draw
