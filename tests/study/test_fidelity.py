from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from framework.latency import latency_from
from framework.protocols import Batch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def fidelity(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("fidelity")


def test_the_toy_predicts_a_runner_whose_steps_sleep(tmp_path: Path, fidelity: Any) -> None:
    file = tmp_path / "toy.json"
    command = [sys.executable, BENCHMARKS / "fidelity.py", "--toy", "--requests", "12"]
    done = subprocess.run(
        [*command, "--json", file], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(file.read_text())
    assert [row["policy"] for row in data["policies"]] == list(fidelity.POLICIES)
    for row in data["policies"]:
        assert row["steps"]["num_steps"] == row["real"]["num_steps"] > 20
        assert 0.2 < row["ratios"]["e2e_s.mean"] < 2  # other programs may hold up the sleeper
        assert row["policy"] in done.stdout
    latency = latency_from(data["calibration"]["latency"])
    slept = import_module("sleeping").LATENCY
    for batch in (Batch.of(1, 100), Batch.of(100, 0)):
        assert slept.predict(batch) < latency.predict(batch) * 1.1
    steps = (tmp_path / "toy.steps.csv").read_text().splitlines()
    assert len(steps) == data["calibration"]["num_steps"] + 1


def _figures(ttft: float, tpot: float = 0.02) -> dict[str, dict[str, float]]:
    return {
        "ttft_s": {"mean": ttft, "p50": ttft, "p95": ttft},
        "tpot_s": {"mean": tpot, "p50": tpot, "p95": tpot},
        "e2e_s": {"mean": ttft + tpot, "p50": ttft + tpot, "p95": ttft + tpot},
    }


def test_each_figure_has_its_own_limit(fidelity: Any) -> None:
    row = fidelity.compare("fcfs", _figures(0.115), _figures(0.1))
    assert row["ratios"]["ttft_s.mean"] == pytest.approx(1.15)
    assert row["misses"] == ["ttft_s.mean", "ttft_s.p50"]
    assert fidelity.compare("fcfs", _figures(0.1, 0.01), _figures(0.1))["misses"] == [
        "tpot_s.mean",
        "tpot_s.p50",
        "tpot_s.p95",
    ]


def _rows(**means: tuple[float, float]) -> list[dict[str, Any]]:
    return [
        {"policy": policy, "simulated": _figures(simulated), "real": _figures(real)}
        for policy, (simulated, real) in means.items()
    ]


def test_policies_that_change_places_are_named_unless_they_were_level(fidelity: Any) -> None:
    found = fidelity.rank(_rows(a=(1.0, 1.1), b=(2.0, 2.2), c=(2.02, 2.1)), "ttft_s")
    assert found["same"] and found["simulated"] == ["a", "b", "c"]
    found = fidelity.rank(_rows(a=(1.0, 1.1), b=(2.0, 2.2), c=(2.2, 2.1)), "ttft_s")
    assert not found["same"] and found["real"] == ["a", "c", "b"]
    assert [each["pair"] for each in found["swapped"]] == [["b", "c"]]


def test_a_real_run_serves_the_same_tokens_at_the_same_moments(fidelity: Any) -> None:
    options = Namespace(toy=True, requests=6, load=0.9, policy=["fcfs"], seed=1)
    model = fidelity.load(options)
    latency = import_module("sleeping").LATENCY
    workload = fidelity.requests_to_serve(options, model.config, latency)
    real, steps = fidelity.serve("fcfs", workload, model)
    simulated = fidelity.simulate("fcfs", workload, model.config, latency)
    prompts = sum(arrival.prompt_len for arrival in workload.arrivals)
    outputs = sum(arrival.output_len for arrival in workload.arrivals)
    assert sum(row.batch.num_tokens for row in steps) == prompts + outputs - 6
    assert real["duration_s"] > workload.arrivals[-1].time - workload.arrivals[0].time
    assert simulated["num_steps"] > 0 and real["ttft_s"]["mean"] > 0.002
