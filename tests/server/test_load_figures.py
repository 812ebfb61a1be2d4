from __future__ import annotations

from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
BEFORE = {
    "time_to_first_token_seconds_sum": 5.0,
    "time_to_first_token_seconds_count": 10.0,
    "inter_token_latency_seconds_sum": 1.0,
    "inter_token_latency_seconds_count": 100.0,
}
AFTER = {
    "time_to_first_token_seconds_sum": 9.0,
    "time_to_first_token_seconds_count": 30.0,
    "inter_token_latency_seconds_sum": 7.0,
    "inter_token_latency_seconds_count": 400.0,
}
TOTALS = {"successful": 20, "total": 20}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("load")


def figures(ttft_ms: float, itl_ms: float) -> dict[str, Any]:
    return {
        "time_to_first_token_ms": {"successful": {"mean": ttft_ms}},
        "inter_token_latency_ms": {"successful": {"mean": itl_ms}},
    }


def test_the_means_are_those_of_the_requests_between_two_looks(load: Any) -> None:
    rows = load.compare(figures(205.0, 20.0), BEFORE, AFTER)
    assert rows["TTFT"]["server_ms"] == pytest.approx(200)
    assert rows["ITL"]["server_ms"] == pytest.approx(20)
    assert rows["TTFT"]["apart"] == pytest.approx(200 / 205 - 1)
    assert load.report(TOTALS, rows, Namespace(json=None, requests=20)) == 0


def test_means_that_are_too_far_apart_or_lost_requests_fail(load: Any) -> None:
    far = load.compare(figures(230.0, 20.0), BEFORE, AFTER)
    assert not far["TTFT"]["passed"] and far["ITL"]["passed"]
    assert load.report(TOTALS, far, Namespace(json=None, requests=20)) == 1
    near = load.compare(figures(200.0, 20.0), BEFORE, AFTER)
    assert load.report(TOTALS | {"successful": 19}, near, Namespace(json=None, requests=20)) == 1
