from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

MINE = """
from framework import hookimpl

class Newest:
    @hookimpl
    def select_waiting(self, waiting):
        return waiting[len(waiting) - 1] if waiting else None

class Broken:
    @hookimpl
    def select_waiting(self, waiting):
        if len(waiting) and waiting[0].request_id == "c":
            raise RuntimeError("no more")
"""


def compare(
    headway: Callable[..., Result], model: Path, prompts: Path, tmp_path: Path, *options: object
) -> tuple[Result, dict[str, Any]]:
    path = tmp_path / "out.json"
    base = ("compare", "--model", model, "--prompts", prompts, "--json", path)
    result = headway(*base, "--max-tokens", 12, "--ignore-eos", *options)
    return result, json.loads(path.read_text(encoding="utf-8"))


def test_each_policy_serves_every_prompt_with_the_same_outputs(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    policies = ("fcfs", "priority(displace=True)", "fcfs+spec_decode")
    result, data = compare(headway, model_directory, prompts_file, tmp_path, *policies)
    assert result.exit_code == 0, result.output
    assert [each["policy"] for each in data["policies"]] == list(policies)
    assert all(each["complete"] for each in data["policies"])
    assert data["outputs_identical"] is True
    assert result.stdout.rstrip().endswith("outputs identical under all policies: yes")
    for policy in policies:
        assert policy in result.stdout
    assert "priority 0 (n=2)" in result.stdout


def test_drafts_are_reserved_only_where_the_stack_makes_them(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    options = ("fcfs", "fcfs+spec_decode", "--num-spec-tokens", 3, "--async-scheduling")
    _, data = compare(headway, model_directory, prompts_file, tmp_path, *options)
    plain, drafting = data["policies"]
    assert plain["num_drafts"] == 0
    assert drafting["num_drafts"] > 0
    assert data["outputs_identical"] is True


def test_sampled_outputs_are_not_called_identical(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    options = ("fcfs", "priority", "--temperature", 1)
    result, data = compare(headway, model_directory, prompts_file, tmp_path, *options)
    assert data["outputs_identical"] is None
    assert "identical" not in result.stdout


def test_a_policy_in_a_file_of_its_own(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    options = (f"{tmp_path}/mine.py:Newest", "fcfs", "--max-num-seqs", 1)
    result, data = compare(headway, model_directory, prompts_file, tmp_path, *options)
    assert result.exit_code == 0, result.output
    newest, oldest = (
        [each["id"] for each in sorted(policy["requests"], key=lambda each: each["finish"])]
        for policy in data["policies"]
    )
    assert oldest[:3] == ["a", "c", "d"]
    assert newest[0] == "d"


def test_a_policy_that_fails_leaves_what_is_done(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    options = ("fcfs", f"{tmp_path}/mine.py:Broken", "--max-num-seqs", 1)
    result, data = compare(headway, model_directory, prompts_file, tmp_path, *options)
    assert result.exit_code == 1
    assert result.stderr.startswith("headway: error: plugin 'broken', hook 'select_waiting'")
    assert "no more" in result.stderr and result.stderr.count("\n") == 1
    assert [each["complete"] for each in data["policies"]] == [True, False]
    assert "1 of 2 policies complete" in result.stdout
    assert data["finished"] is False


def test_latencies_count_from_arrival(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    _, data = compare(headway, model_directory, prompts_file, tmp_path, "fcfs")
    arrivals = {each["id"]: each["arrival"] for each in data["policies"][0]["requests"]}
    assert arrivals["a"] == arrivals["c"] == arrivals["d"]
    assert round(arrivals["b"] - arrivals["a"], 6) == 0.05


def test_interrupting_keeps_what_is_done(
    model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    late = json.dumps({"prompt": "z", "id": "late", "arrival_s": 600})
    prompts_file.write_text(prompts_file.read_text() + late + "\n")
    out = tmp_path / "out.json"
    log = tmp_path / "log"
    command = (
        *(Path(sys.executable).with_name("headway"), "compare", "fcfs", "priority"),
        *("--model", model_directory, "--prompts", prompts_file, "--json", out, "-vv"),
    )
    with log.open("w") as stderr:  # one request of the warm-up, then the four that arrive early
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=os.environ
        )
        while log.read_text().count("finished") < 5 and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "4/5" in stdout and "0 of 2 policies complete" in stdout
    data = json.loads(out.read_text())
    assert {each["id"] for each in data["policies"][0]["requests"]} == {"a", "b", "c", "d"}
