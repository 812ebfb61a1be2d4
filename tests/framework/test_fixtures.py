"""The pytest plugin, from a repository that is not this one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MINE = """
from framework import Request, hookimpl

class Mine:
    @hookimpl
    def order_waiting(self, request: Request) -> int:
        return request.num_prompt_tokens
"""
BENCH = """
import pytest
from framework.study.synthetic import make_workload

@pytest.fixture
def workload():
    return make_workload("poisson:rate=9,n=40,prompt=200,output=20")

def test_small(policy_benchmark, policy, workload):
    run = policy_benchmark(workload, policy, rounds=2)
    assert run.outcome.reasons == {"stop": 40}
"""
SLOW_RUNNER = """
import time

class Slow:
    def __init__(self, runner):
        self.runner = runner

    def __getattr__(self, name):
        return getattr(self.runner, name)

    def execute(self, output):
        time.sleep(0.005)
        return self.runner.execute(output)
"""
OWN = """
import sys
import pytest

@pytest.fixture
def policy():
    return "my own"

def test_own_fixture(policy):
    assert policy == "my own"

@pytest.mark.parametrize("workload", [1, 2])
def test_own_parameters(workload):
    assert workload in (1, 2)

def test_nothing_is_loaded():
    assert not [name for name in sys.modules if name.startswith("framework.study")]
    assert "hypothesis.strategies" not in sys.modules
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "my_bench.py").write_text(BENCH)
    (tmp_path / "test_own.py").write_text(OWN)
    return tmp_path


def test_each_policy_is_benchmarked_with_its_metrics(repository: Path) -> None:
    policies = ["--policy", "vtc", "--policy", "./mine.py:Mine"]
    told = run_pytest(repository, "my_bench.py", *policies, "--benchmark-json=out.json")
    assert "2 passed" in told
    found = json.loads((repository / "out.json").read_text())["benchmarks"]
    assert [each["name"] for each in found] == ["test_small[vtc]", "test_small[./mine.py:Mine]"]
    assert all(each["stats"]["rounds"] == 2 and each["stats"]["min"] > 0 for each in found)
    assert all(each["extra_info"]["outcome"]["num_requests"] == 40 for each in found)


def test_the_column_is_the_time_of_the_scheduler_alone(repository: Path) -> None:
    bench = SLOW_RUNNER + BENCH.replace("rounds=2", "rounds=1, around=Slow")
    (repository / "my_bench.py").write_text(bench)
    run_pytest(repository, "my_bench.py", "--benchmark-json=out.json")
    [found] = json.loads((repository / "out.json").read_text())["benchmarks"]
    num_steps = found["extra_info"]["num_steps"]
    assert found["stats"]["mean"] < 0.002 * num_steps


def test_without_policy_it_is_fcfs(repository: Path) -> None:
    assert "test_small[fcfs] PASSED" in run_pytest(repository, "my_bench.py", "-v")


def test_another_repository_keeps_its_own_fixtures_and_loads_nothing(repository: Path) -> None:
    assert "4 passed" in run_pytest(repository, "test_own.py")


def run_pytest(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
