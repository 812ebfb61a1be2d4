from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.model
def test_the_boundary_is_timed_at_toy_size(tmp_path: Path) -> None:
    file = tmp_path / "ipc.json"
    command = [sys.executable, BENCHMARKS / "ipc.py", "--repeats", "1", "--tokens", "8"]
    done = subprocess.run(
        [*command, "--json", file], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode in (0, 1), done.stderr  # so few tokens are timed badly
    data = json.loads(file.read_text())
    assert [row["streams"] for row in data["boundary"]] == [1, 32, 256]
    assert all(row["across_us"] > 0 < row["inside_us"] for row in data["boundary"])
    passed = [row["passed"] for row in data["boundary"]] + [data["slow_client"]["passed"]]
    assert done.returncode == (0 if all(passed) else 1)
    assert data["slow_client"]["ratio"] > 0


def test_a_limit_that_is_passed_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    ipc: Any = import_module("ipc")
    row = {"streams": 1, "inside_us": 70.0, "across_us": 230.0, "added_us": 160.0}
    row |= {"added_us_all": [150.0, 160.0, 170.0], "limit_us": 150.0, "passed": False}
    tok_s = {"none": 3.0, "reads": 2.0, "stuck": 2.0}
    assert not ipc.report([row], {"tok_s": tok_s, "ratio": 1.0, "passed": True})
    assert "(150.0 .. 170.0)" in (told := capsys.readouterr().out) and "FAIL" in told
    assert ipc.report([row | {"passed": True}], {"tok_s": tok_s, "ratio": 1.0, "passed": True})
    assert not ipc.report([], {"tok_s": tok_s, "ratio": 0.5, "passed": False})
