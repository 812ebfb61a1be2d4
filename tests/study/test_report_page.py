"""The page and the figures of a comparison."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("matplotlib")

from framework.study.report import write_figures, write_report
from framework.study.report.charts import charts, pens

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = ("fcfs", "mine<b>")


def estimate(mean: float, *, interval: bool) -> dict[str, Any]:
    low, high = (mean * 0.9, mean * 1.1) if interval else (None, None)
    return {"n": 3 if interval else 1, "mean": mean, "low": low, "high": high, "samples": 10}


def result(loads: tuple[float | None, ...] = (None,), *, interval: bool = False) -> dict[str, Any]:
    """A comparison of two policies; the second is twice as slow."""
    curves = {
        "time_s": [0.0, 1.0, 2.0],
        "kv_used_blocks": [0, 5, 3],
        "kv_total_blocks": 9,
        "running": [0, 2, 1],
        "waiting": [1, 0, 0],
        "step_tokens": [10, 2, 1],
        "cdf": {"ttft_s": [[0.1, 0.5], [0.2, 1.0]], "itl_s": [[0.01, 1.0]], "e2e_s": [[2.0, 1.0]]},
        "service": {"time_s": [0.0, 2.0], "by_tenant": {"t0": [0, 5], "t1": [0, 7]}},
    }
    metrics = {
        policy: {
            "ttft_p50": estimate(0.1 * (place + 1), interval=interval),
            "itl_p99": estimate(0.02, interval=interval),
        }
        for place, policy in enumerate(POLICIES)
    }
    return {
        "headway": "0",
        "headline": "fcfs is <fast> & first",
        "policies": [{"policy": policy, "stack": [], "plugins": []} for policy in POLICIES],
        "workload": {"name": "made up", "num_requests": 1234, "counts": {"clipped": 5}},
        "config": {"num_blocks": 10},
        "latency": {"name": "a GPU"},
        "seeds": [0],
        "loads": list(loads),
        "capacity": None,
        "runs": [
            {"policy": policy, "load": load, "seed": 0, "curves": curves}
            for load in loads
            for policy in POLICIES
        ],
        "summary": [
            {"policy": policy, "load": load, "metrics": metrics[policy]}
            for load in loads
            for policy in POLICIES
        ],
        "paired": [
            {
                "policy": POLICIES[1],
                "baseline": POLICIES[0],
                "load": loads[0],
                "metrics": {"ttft_p50": estimate(0.1, interval=True)},
            }
        ],
        "sensitivity": None,
    }


def test_the_page_stands_alone_and_says_what_was_compared(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(result(interval=True), path)
    text = path.read_text(encoding="utf-8")
    assert "fcfs is &lt;fast&gt; &amp; first" in text
    assert "mine&lt;b&gt;" in text
    assert "mine<b>" not in text
    assert "1,234 requests of made up" in text
    assert "5 clipped" in text
    assert text.count("<svg") == 4
    assert "<script" not in text
    outside = re.findall(r"""(?:src|href)=["'](?!#)([^"']+)""", text)
    assert outside == []
    told = re.search(r"<pre>(.*)</pre>", text, re.DOTALL)
    assert told is not None
    assert "&quot;num_blocks&quot;: 10" in told.group(1)


def test_numbers_stand_in_the_unit_of_their_column(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(result(), path)
    text = path.read_text(encoding="utf-8")
    assert "ITL p99 ms" in text
    assert "<td>20.0</td>" in text


def test_equal_results_give_equal_pages(tmp_path: Path) -> None:
    paths = [tmp_path / "a.html", tmp_path / "b.html"]
    for path in paths:
        write_report(result(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_one_load_has_bars_and_several_have_lines() -> None:
    assert [chart.name for chart in charts(result())] == ["metrics", "cdf", "over-time", "service"]
    assert charts(result((0.5, 0.9), interval=True))[0].name == "load"


def test_curves_are_those_of_the_largest_load_below_capacity() -> None:
    shown = charts(result((0.5, 0.95, 1.1)))[1]
    assert shown.title == "Distributions at 0.95 of capacity"


def test_every_policy_has_a_pen_of_its_own() -> None:
    many = {"policies": [{"policy": str(number)} for number in range(8)]}
    assert len({(pen.colour, pen.style) for pen in pens(many).values()}) == 8


def test_figures_are_png_files(tmp_path: Path) -> None:
    paths = write_figures(result((0.5, 0.9), interval=True), tmp_path / "figures")
    assert [path.name for path in paths] == ["load.png", "cdf.png", "over-time.png", "service.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_a_ranking_that_turns_around_is_told_in_words(tmp_path: Path) -> None:
    turned = {"pair": ["fcfs", "vtc"], "term": "token_ms", "factor": 0.8}
    found = {"ranking": ["fcfs", "vtc"], "survives": False, "turned": [turned], "values": []}
    write_report(
        {**result(), "sensitivity": {"metrics": {"ttft_p99": found}}}, tmp_path / "report.html"
    )
    assert "fcfs / vtc with token_ms x 0.8" in (tmp_path / "report.html").read_text("utf-8")


def test_where_every_policy_failed_the_page_has_no_figures(tmp_path: Path) -> None:
    failed = json.loads(json.dumps(result()))
    failed["summary"] = []
    for run in failed["runs"]:
        del run["curves"]
    assert charts(failed) == []
    write_report(failed, tmp_path / "report.html")
    assert write_figures(failed, tmp_path / "figures") == []


def test_a_run_without_curves_leaves_the_comparison_of_metrics(tmp_path: Path) -> None:
    bare = json.loads(json.dumps(result()))
    for run in bare["runs"]:
        del run["curves"]
    assert [chart.name for chart in charts(bare)] == ["metrics"]
    write_report(bare, tmp_path / "report.html")
