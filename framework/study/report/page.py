"""The page: headline, figures, tables, and what is needed to repeat the comparison."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from framework.study.report.charts import charts
from framework.study.report.drawing import svg, write_png
from framework.study.stats import METRICS, Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def write_report(result: Mapping[str, Any], path: Path) -> None:
    """Write a self-contained page: no script, no font, no address outside of it.

    Args:
        result: of a comparison, see `framework.study.result`.
        path: of the HTML file.

    Raises:
        HeadwayError: matplotlib is not installed.
    """
    template = Template(
        files("framework").joinpath("data/report/page.html").read_text(encoding="utf-8")
    )
    figures = "".join(_figure(chart.title, chart.note, svg(chart)) for chart in charts(result))
    text = template.substitute(
        title=escape(f"{' / '.join(each['policy'] for each in result['policies'])}"),
        headline=escape(result["headline"]),
        subtitle=escape(_subtitle(result)),
        figures=figures,
        summary=_summary(result),
        paired=_paired(result),
        sensitivity=_sensitivity(result),
        details=_details(result),
    )
    path.write_text(text, encoding="utf-8")


def write_figures(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """Write every figure as a PNG file; returns their paths.

    Raises:
        HeadwayError: matplotlib is not installed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for chart in charts(result):
        paths.append(directory / f"{chart.name}.png")
        write_png(chart, paths[-1])
    return paths


def _subtitle(result: Mapping[str, Any]) -> str:
    workload, seeds = result["workload"], result["seeds"]
    parts = [
        f"{workload['num_requests']:,} requests of {workload['name']}",
        f"latency of {result['latency']['name']}",
        f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}",
    ]
    if workload.get("counts"):
        counts = (f"{count:,} {reason}" for reason, count in workload["counts"].items())
        parts.append(", ".join(counts))
    return " · ".join(parts)


def _figure(title: str, note: str, picture: str) -> str:
    return (
        f"<section><h2>{escape(title)}</h2><p>{escape(note)}</p>"
        f'<figure role="img" aria-label="{escape(title)}">{picture}</figure></section>'
    )


def _summary(result: Mapping[str, Any]) -> str:
    shown = [
        metric
        for metric in METRICS
        if any(metric.name in row["metrics"] for row in result["summary"])
    ]
    head = ["policy", *(["load"] if len(result["loads"]) > 1 else []), *(m.title for m in shown)]
    rows = []
    for row in result["summary"]:
        cells = [escape(row["policy"])]
        if len(result["loads"]) > 1:
            cells.append(f"{row['load']:g}")
        cells += [_estimate(row["metrics"].get(metric.name), metric) for metric in shown]
        rows.append(cells)
    return _table(head, rows)


def _paired(result: Mapping[str, Any]) -> str:
    """Differences to the first policy, where several seeds say something about them."""
    rows = []
    for pair in result["paired"]:
        for metric in METRICS:
            found = pair["metrics"].get(metric.name)
            if found is None or found["low"] is None or found["low"] <= 0 <= found["high"]:
                continue
            load = "" if pair["load"] is None else f"{pair['load']:g}"
            rows.append(
                [
                    escape(pair["policy"]),
                    escape(pair["baseline"]),
                    load,
                    escape(metric.title),
                    _estimate(found, metric),
                ]
            )
    if not rows:
        return ""
    note = "Paired over seeds; only differences whose 95 % interval leaves 0 out."
    table = _table(["policy", "against", "load", "metric", "difference"], rows)
    return f"<h2>Differences</h2><p>{note}</p>{table}"


def _sensitivity(result: Mapping[str, Any]) -> str:
    found = result.get("sensitivity")
    if not found:
        return ""
    titles = {metric.name: metric.title for metric in METRICS}
    rows = [
        [
            escape(titles.get(name, name)),
            escape(" < ".join(each["ranking"])),
            ("yes" if each["survives"] else "no") if len(each["ranking"]) > 1 else "-",
            escape("; ".join(map(_turn, each["turned"]))),
        ]
        for name, each in found["metrics"].items()
    ]
    note = "Each coefficient of the latency model changed by 20 % either way, one at a time."
    table = _table(["metric", "ranking", "survives", "turned by"], rows)
    return f"<h2>Does the ranking survive?</h2><p>{note}</p>{table}"


def _turn(turned: Mapping[str, Any]) -> str:
    return f"{' / '.join(turned['pair'])} with {turned['term']} x {turned['factor']:g}"


def _details(result: Mapping[str, Any]) -> str:
    keys = ("headway", "policies", "workload", "config", "drafts", "latency", "seeds", "capacity")
    told = {key: result[key] for key in keys if key in result}
    return escape(json.dumps(told, indent=1, ensure_ascii=False))


def _show(metric: Metric, value: float) -> str:
    return f"{value * metric.scale:,.{metric.digits}f}"


def _estimate(found: Mapping[str, Any] | None, metric: Metric) -> str:
    if found is None:
        return "&ndash;"
    text = _show(metric, found["mean"])
    if found.get("low") is None:
        return escape(text)
    span = f"{_show(metric, found['low'])} … {_show(metric, found['high'])}"
    return f'{escape(text)} <small title="95 % interval">{escape(span)}</small>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML, heads are text."""
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join(
        "<tr>"
        + f'<th scope="row">{row[0]}</th>'
        + "".join(f"<td>{cell}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'
