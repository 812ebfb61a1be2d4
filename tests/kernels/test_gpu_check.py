"""The GPU check finds what it says it finds: at toy size on the CPU, and where things go wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

pytest.importorskip("transformers")

from attrs import define, field

from benchmarks.gpu_check import cases, correctness, goals, part
from benchmarks.gpu_check.conductor import GO_ON, SHARES, Conductor
from benchmarks.gpu_check.idle import idle_share
from benchmarks.gpu_check.part import Check, Item, Record, run_part
from benchmarks.gpu_check.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of all parts at toy size, in processes of their own."""
    directory = tmp_path_factory.mktemp("gpu_check")
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--toy", "--out", str(directory)]
    command += ["--seconds", "1200"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads((directory / "gpu.json").read_text())
    return found


def test_every_part_runs_to_its_end_without_an_error(results: dict[str, Any]) -> None:
    assert (results["toy"], results["finished"], results["passed"]) == (True, True, True)
    assert list(results["parts"]) == list(SHARES)
    for name, found in results["parts"].items():
        assert found["ended"] == "complete", name
        assert found["items"], name
        for item, figures in found["items"].items():
            assert not isinstance(figures.get("error"), str), (name, item, figures)
            assert "skipped" not in figures, (name, item)


def test_all_kernels_are_compared_in_all_dtypes(results: dict[str, Any]) -> None:
    found = results["parts"]["correctness"]
    tried = {
        (name, dtype) for name, dtype in (key.split() for key in found["conclusion"]["kernels"])
    }
    files = (ROOT / "runners" / "triton" / "kernels").glob("*.py")
    launchers = [file.stem for file in files if "_kernel[" in file.read_text()]
    kernels = {name for name, _ in tried}
    assert len(kernels) >= len(launchers) - 1  # merge_splits is part of split_decode
    assert tried == {(name, dtype) for name in kernels for dtype in ("float32", "float16")}
    assert max(item["error"] for item in found["items"].values()) > 0


def test_figures_of_models_fit_together(results: dict[str, Any]) -> None:
    found = results["parts"]["decode"]["items"]
    fused = found["toy model"]["fused"]
    assert fused == {"FusedLayer": 2, "FusedAttention": 2, "FusedMLP": 2, "FusedRMSNorm": 5}
    assert found["toy graphs"]["passed"] is True
    assert found["toy graphs"]["equal_tokens"] == [4, 4, 4]
    for batch in (1, 2):
        load = found[f"toy {batch} x 16"]
        assert load["tokens_s"] == pytest.approx(batch * 1e6 / load["step_us"], rel=1e-3)
        assert 0 < load["scheduler_us"] < load["step_us"]
        assert load["launch_us"] > 0
        assert load["forward_us"] > 0
        assert load["steps"] >= 3
    # two layers of projections, gated MLP and two norms; the last norm and the head
    weights = 4 * (2 * (3 * 64 * 64 + 3 * 64 * 96 + 2 * 64) + 64 + 97 * 64)
    assert found["toy model"]["weight_gigabytes"] == pytest.approx(weights / 1e9, abs=1e-6)
    assert found["toy model"]["kv_bytes"] == 2 * 2 * 2 * 16 * 4


def test_the_peer_gets_the_same_work_and_gives_the_same_tokens(results: dict[str, Any]) -> None:
    found = results["parts"]["peer"]
    ours, theirs = found["items"].values()
    assert len(ours["digests"]) == found["conclusion"]["equal"] == 3
    ratio = ours["tokens_s"] / theirs["tokens_s"]
    assert found["conclusion"]["ratio"] == pytest.approx(ratio, abs=1e-3)


def test_rates_are_positive_and_pytest_ran(results: dict[str, Any]) -> None:
    for name, figures in results["parts"]["bandwidth"]["items"].items():
        assert figures["us"] > 0, name
    assert results["parts"]["machine"]["conclusion"]["read_tb_s"] > 0
    assert "passed" in results["parts"]["suite"]["conclusion"]["closing"]
    assert "no GPU" in results["parts"]["tuning"]["items"]["tuner"]["lines"][-1]


@define(eq=False)
class Steps:
    """A part of some items."""

    works: dict[str, Callable[[], dict[str, Any]]]
    least: float = 0.0
    calls: list[str] = field(factory=list)

    def items(self, check: Check) -> Iterable[Item]:
        del check
        for name, work in self.works.items():
            yield Item(
                name, lambda name=name, work=work: [self.calls.append(name), work()][1], self.least
            )

    def conclude(self, found: dict[str, Any]) -> dict[str, Any]:
        return {"count": len(found)}


@define(eq=False)
class BrokenPlace(Place):
    """A device that an illegal access has left unusable."""

    def wait(self) -> None:
        raise RuntimeError("an illegal memory access was encountered")


def run_steps(path: Path, steps: Steps, place: Place | None = None, seconds: float = 60.0) -> int:
    place = place or Place(torch.device("cpu"), True)
    check = Check(place, path, time.time() + seconds)
    return run_part(steps, check, Record.read(path / "part.json", steps.conclude))


def fail() -> dict[str, Any]:
    raise ValueError("three is no number of heads")


def test_an_item_that_fails_is_kept_with_its_traceback_and_the_rest_goes_on(tmp_path: Path) -> None:
    steps = Steps({"one": lambda: {"value": 1}, "two": fail, "three": lambda: {"value": 3}})
    assert run_steps(tmp_path, steps) == 0
    found = json.loads((tmp_path / "part.json").read_text())
    assert found["items"]["one"]["value"] == 1
    assert "three is no number of heads" in found["items"]["two"]["error"]
    assert "in fail" in found["items"]["two"]["error"]
    assert found["items"]["three"]["value"] == 3
    assert found["conclusion"] == {"count": 3}


def test_after_an_item_that_breaks_the_device_a_fresh_process_goes_on_behind_it(
    tmp_path: Path,
) -> None:
    steps = Steps({"one": lambda: {"value": 1}, "two": lambda: {"value": 2}})
    broken = BrokenPlace(torch.device("cpu"), True)
    assert run_steps(tmp_path, steps, broken) == GO_ON
    assert run_steps(tmp_path, steps) == 0
    assert steps.calls == ["one", "two"]
    found = json.loads((tmp_path / "part.json").read_text())["items"]
    assert "illegal memory access" in found["one"]["error"]
    assert found["two"]["value"] == 2


def test_an_item_in_which_the_process_dies_is_in_the_file_as_cut_off(tmp_path: Path) -> None:
    steps = Steps({"one": lambda: sys.exit(1), "two": lambda: {"value": 2}})
    with pytest.raises(SystemExit):
        run_steps(tmp_path, steps)
    assert run_steps(tmp_path, steps) == 0
    found = json.loads((tmp_path / "part.json").read_text())["items"]
    assert found["one"] == {"error": part.CUT_OFF}
    assert found["two"]["value"] == 2


def test_an_item_for_which_time_is_short_says_so(tmp_path: Path) -> None:
    steps = Steps({"one": lambda: {"value": 1}}, least=30.0)
    assert run_steps(tmp_path, steps, seconds=10.0) == 0
    assert steps.calls == []
    found = json.loads((tmp_path / "part.json").read_text())["items"]
    assert found["one"] == {"skipped": "10 s were left, 30 are needed"}


def test_a_part_that_does_not_end_is_ended_and_the_next_ones_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor = Conductor(tmp_path, 2.0, True, ["machine", "peer"])
    monkeypatch.setattr("benchmarks.gpu_check.conductor.GRACE", 0.1)
    monkeypatch.setattr("benchmarks.gpu_check.conductor.FEWEST", 0.0)
    monkeypatch.setattr("benchmarks.gpu_check.conductor.SHARES", {"machine": 100, "peer": 300})
    assert not conductor.run()
    found = json.loads((tmp_path / "gpu.json").read_text())
    ends = {name: figures["ended"] for name, figures in found["parts"].items()}
    assert list(ends) == ["machine", "peer"]
    assert ends["machine"] == "out of time"
    assert ends["peer"] in ("out of time", "complete")  # as fast as this machine is
    assert found["seconds"] < 10


@pytest.mark.parametrize(
    ("kernels", "graphs", "passed"),
    [
        (("complete", True), True, True),
        (("complete", False), True, False),
        (("complete", True), False, False),
        (("complete", True), None, True),
        (("out of time", True), True, None),
    ],
)
def test_kernels_and_graphs_decide_and_kernels_must_all_be_tried(
    tmp_path: Path, kernels: tuple[str, bool], graphs: bool | None, passed: bool | None
) -> None:
    conductor = Conductor(tmp_path, 1.0, True, [])
    conductor.results = {
        "correctness": {"ended": kernels[0], "conclusion": {"passed": kernels[1]}, "items": {}},
        "decode": {"ended": "complete", "conclusion": {"passed": graphs}, "items": {}},
    }
    assert conductor.run() is (passed is True)
    assert json.loads((tmp_path / "gpu.json").read_text())["passed"] is passed


def test_a_wrong_missing_or_skipped_case_fails_its_kernel() -> None:
    right = {"passed": True, "error": 0.001}
    assert correctness.conclude({"norm a: 1": right, "norm a: 2": right})["passed"]
    for wrong in ({"passed": False, "error": 0.5}, {"error": "Traceback"}, {"skipped": "no time"}):
        found = correctness.conclude({"norm a: 1": right, "norm a: 2": wrong, "store a: 1": right})
        assert not found["passed"]
        assert len(found["kernels"]["norm a"]["failed"]) == 1
        assert not found["kernels"]["store a"]["failed"]


def test_an_error_counts_by_the_largest_value_and_nan_counts_without_end() -> None:
    expected = torch.tensor([1.0, -4.0, -torch.inf])
    assert cases.gap((expected, expected)) == 0
    assert cases.gap((torch.tensor([1.2, -4.0, -torch.inf]), expected)) == pytest.approx(0.05)
    assert math.isinf(cases.gap((torch.tensor([1.0, -4.0, 0.0]), expected)))
    assert math.isinf(cases.gap((torch.tensor([torch.nan, -4.0, -torch.inf]), expected)))


def test_idle_is_what_lies_in_gaps_longer_than_those_within_a_graph() -> None:
    spans = [(0.0, 10.0), (2.0, 4.0), (12.0, 30.0), (50.0, 100.0)]
    assert idle_share(spans) == pytest.approx(0.2)


def test_goals_are_reached_from_their_side() -> None:
    found = {
        "bandwidth": {"decode 32 x 4096": {"tb_s": 3.5}, "prefill 8192": {"tflops": 450.0}},
        "decode": {"1B idle": {"idle_share": 0.1}, "1B 256 x 128": {"scheduler_us": 400.0}},
    }
    rows = {row["title"]: row for row in goals.compare(found)}
    assert rows["decode attention, 32 x 4K"]["verdict"] == "accept"
    assert rows["prefill attention, 8K"]["verdict"] == "stretch"
    assert rows["GPU idle between steps, 1B"]["verdict"] == "accept"
    assert rows["scheduler, 256 running"]["verdict"] == "short"
    assert rows["8B, batch 1, context 1K"]["verdict"] == "not measured"
    assert "3.5" in goals.table(list(rows.values()))
