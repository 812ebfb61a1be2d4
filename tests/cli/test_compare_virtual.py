"""`headway compare --workload` and `headway capacity`: what is shown, written and refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

SPEC = "poisson:rate=8,n=40,prompt=lognormal(600,0.7),output=lognormal(60,0.8)"
TRACE = "time,prompt,output\n" + "".join(f"{i / 5},{100 + 50 * i},{5 + i % 7}\n" for i in range(40))
BROKEN = """
from framework import hookimpl

class Broken:
    @hookimpl
    def select_waiting(self, waiting):
        raise RuntimeError("no more")
"""


def test_a_table_a_result_and_real_times_apart(
    headway: Callable[..., Result], tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    asked = ("compare", "fcfs", "sarathi", "--workload", SPEC, "--json", path, "--jobs", 1)
    result = headway(*asked, "--tenants", 2, "--slo-ttft", 1)
    assert result.exit_code == 0, result.output
    for words in ("poisson: 40 requests", "TTFT p99 s", "sarathi", "is of 40 requests"):
        assert words in result.stdout
    data = json.loads(path.read_text())
    assert [run["policy"] for run in data["runs"]] == ["fcfs", "sarathi"]
    assert data["config"]["max_num_batched_tokens"] == 2048
    host = json.loads(path.with_suffix(".host.json").read_text())
    assert {run["policy"] for run in host["runs"]} == {"fcfs", "sarathi"}


def test_a_result_is_written_though_nobody_reads_the_table(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    asked = ("compare", "fcfs", "--workload", SPEC, "--jobs", "1", "--json", "out.json")
    code = "from framework.cli import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", code, *asked], cwd=tmp_path, stdout=writer, check=False
    )
    os.close(writer)
    assert found.returncode == 1
    assert json.loads((tmp_path / "out.json").read_text())["runs"]


def test_limits_and_the_seed_reach_the_runs(headway: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    options = ("--max-num-seqs", 4, "--num-blocks", 900, "--seed", 5, "--seeds", 2, "--json", path)
    headway("compare", "fcfs", "--workload", SPEC, "--jobs", 1, *options)
    data = json.loads(path.read_text())
    assert (data["config"]["max_num_seqs"], data["config"]["num_blocks"]) == (4, 900)
    assert data["seeds"] == [5, 6]
    assert max(data["runs"][0]["curves"]["running"]) <= 4


def test_loads_follow_one_option_and_policies_stand_before_it(
    headway: Callable[..., Result], tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    asked = ("--workload", SPEC, "--jobs", 1, "--json", path, "--seeds", 2)
    result = headway("compare", "fcfs", "sarathi", "--load", ".5", "1.1", *asked)
    assert result.exit_code == 0, result.output
    assert json.loads(path.read_text())["loads"] == [0.5, 1.1]
    assert "at a load of 1.1" in result.stdout
    assert "Differences to fcfs at a load of 0.5, paired by seed" in result.stdout


def test_a_trace_is_cut_and_the_cut_is_counted(
    headway: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    asked = ("--workload", tmp_path / "trace.csv", "--jobs", 1, "--first", 30, "--time-scale", 0.5)
    result = headway("compare", "fcfs", *asked, "--max-model-len", 1000)
    assert "trace: 30 requests, 10.00 requests/s" in result.stdout
    assert "clipped: 12" in result.stdout


def test_a_ranking_that_survives_is_shown(headway: Callable[..., Result]) -> None:
    spec = SPEC.replace("n=40", "n=12")
    result = headway("compare", "fcfs", "sarathi", "--workload", spec, "--jobs", 1, "--sensitivity")
    assert "ranking, lowest first" in result.stdout
    assert "sarathi < fcfs" in result.stdout


def test_a_policy_that_fails_ends_in_status_1(
    headway: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    broken = f"{tmp_path}/mine.py:Broken"
    result = headway("compare", "fcfs", broken, "--workload", SPEC, "--jobs", 1)
    assert result.exit_code == 1
    assert f"{broken} failed" in result.stdout and "no more" in result.stdout


def test_requests_that_nobody_served_are_told_with_the_reason(
    headway: Callable[..., Result],
) -> None:
    result = headway("compare", "fcfs", "--workload", SPEC, "--max-model-len", 2, "--jobs", 1)
    lines = [line for line in result.stdout.splitlines() if "unserved" in line]
    assert "refused); latencies are of the others: request 'r0': prompt has" in lines[0]
    assert "unserved" in lines[-1] and lines[-1] == result.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --prompts (a real model) or --workload"),
        (("--workload", SPEC, "--prompts", "demo"), "give --prompts (a real model) or --workload"),
        (("--workload", SPEC, "--dtype", "float16"), "--dtype: it goes with --prompts"),
        (("--prompts", "demo", "--seeds", "3"), "--seeds: it goes with --workload"),
        (("--workload", "nowhere.csv"), "a file that exists, or a SPEC"),
        (("--workload", "poisson:prmpt=3"), "Did you mean 'prompt'"),
        (("--workload", SPEC, "--latency", "h200"), "latency: got 'h200'"),
        (("--workload", SPEC, "--slo", "1/1", "--slo-ttft", "1"), "give --slo, or"),
        (("--workload", SPEC, "--tenants", "a*x"), "tenants: got 'a*x'"),
        (("--workload", SPEC, "--columns", "when=t"), "columns: got 'when=t'"),
        (("--workload", SPEC, "--window", "0", "5"), "window: it goes with a trace"),
        (("--workload", SPEC, "--async-scheduling"), "async_scheduling: got True"),
        (("--workload", SPEC, "--load", "0"), "shares of the capacity"),
    ],
)
def test_what_does_not_go_together_is_told(
    headway: Callable[..., Result], options: tuple[str, ...], words: str
) -> None:
    result = headway("compare", "fcfs", *options)
    assert result.exit_code == 2, result.output
    assert words in result.stderr and result.stderr.count("\n") == 1


def test_the_capacity_of_each_policy(headway: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    options = ("--jobs", 1, "--itl-p99", 0.1, "--json", path)
    result = headway("capacity", "sarathi", "prefill_first", "--workload", SPEC, *options)
    assert result.exit_code == 0, result.output
    data = json.loads(path.read_text())
    sarathi, stalled = (data["capacities"][name] for name in ("sarathi", "prefill_first"))
    assert sarathi["rate"] > stalled["rate"] > 0
    assert data["promise"]["itl_p99"] == 0.1
    assert "Highest rate that keeps the promise" in result.stdout


def test_a_capacity_needs_a_workload(headway: Callable[..., Result]) -> None:
    result = headway("capacity", "fcfs")
    assert result.exit_code == 2
    assert "give --workload" in result.stderr
