from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from framework.latency import TableLatency, load_latency
from framework.protocols import Batch
from framework.study.fitting import Row, read_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    """A step of 10 ms and 1 ms for each token."""
    rows = [
        Row(Batch.of(count, 0) if count > 1 else Batch.of(1, 50), 0.010 + 0.001 * count)
        for count in range(1, 101)
    ]
    write_rows(rows, tmp_path / "rows.csv")
    return tmp_path / "rows.csv"


@pytest.mark.parametrize("options", [[], ["--curve"]])
def test_measured_rows_become_a_file_that_latency_takes(
    headway: Callable[..., Result], rows_file: Path, tmp_path: Path, options: list[str]
) -> None:
    out, report = tmp_path / "mine.json", tmp_path / "report.json"
    result = headway("calibrate", "--rows", rows_file, "--out", out, "--json", report, *options)
    assert result.exit_code == 0, result.stderr
    latency = load_latency(out)
    assert isinstance(latency, TableLatency) is bool(options)
    assert latency.name == "rows" and "100 steps of" in latency.source
    assert latency.predict(Batch.of(64, 0)) == pytest.approx(0.074, rel=0.02)
    data = json.loads(report.read_text())
    assert data["mape"] < 0.02 and result.stdout.endswith(f"{data['headline']}\n")
    spec = "constant:rate=5,n=8,prompt=40,output=4"
    compared = headway("compare", "fcfs", "--workload", spec, "--latency", out, "--json", report)
    assert compared.exit_code == 0, compared.stderr
    assert json.loads(report.read_text())["latency"]["name"] == "rows"


def test_bad_rows_are_told_in_one_line(
    headway: Callable[..., Result], rows_file: Path, tmp_path: Path
) -> None:
    with rows_file.open("a") as file:
        file.write("1,0,0,many,1,1,0.01\n")
    result = headway("calibrate", "--rows", rows_file, "--out", tmp_path / "mine.json")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"headway: error: {rows_file}:102: got ")
    assert not (tmp_path / "mine.json").exists()


def test_a_real_runner_is_measured(
    headway: Callable[..., Result], model_directory: Path, tmp_path: Path
) -> None:
    out, rows = tmp_path / "tiny.json", tmp_path / "rows.csv"
    limits = ["--max-num-seqs", 2, "--max-num-batched-tokens", 32, "--max-model-len", 64]
    command = ["calibrate", "--model", model_directory, "--seconds", 1, "--threads", 1, *limits]
    result = headway(*command, "--out", out, "--save-rows", rows)
    assert result.exit_code == 0, result.stderr
    latency = load_latency(out)
    measured = read_rows(rows)
    assert latency.num_kv_tokens == 1023 * 16
    assert "float32 on cpu, torch runner" in latency.name
    total = sum(latency.predict(row.batch) for row in measured)
    assert total == pytest.approx(sum(row.seconds for row in measured), rel=0.5)
