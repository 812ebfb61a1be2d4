"""Bad input: exit status 2, one line on stderr that says what to change, nothing on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from framework.cli.options import WITHOUT_MODELS
from framework.engine.models import RUNNERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

GOOD = '{"prompt": "a"}'


@pytest.fixture
def prompts(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str) -> Path:
        path = tmp_path / "prompts.jsonl"
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return write


def expect_refusal(result: Result, *named: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("headway: error: ")
    assert result.stderr.count("\n") == 1
    for each in named:
        assert each in result.stderr


def test_a_bad_line_of_a_prompts_file(
    headway: Callable[..., Result], prompts: Callable[..., Path]
) -> None:
    path = prompts(GOOD, '{"promt": "b"}')
    for command in ("generate",), ("compare", "fcfs"):
        result = headway(*command, "--prompts", path)
        expect_refusal(result, f"{path} line 2", "promt", "Did you mean 'prompt'")


def test_an_empty_prompts_file(
    headway: Callable[..., Result], prompts: Callable[..., Path]
) -> None:
    expect_refusal(headway("generate", "--prompts", prompts("")), "holds no prompt")


def test_no_prompt_at_all(headway: Callable[..., Result]) -> None:
    expect_refusal(headway("generate"), "no prompt", "--prompts")


def test_a_directory_that_is_no_model(headway: Callable[..., Result], tmp_path: Path) -> None:
    expect_refusal(headway("generate", "hi", "--model", tmp_path), "no config.json")


def test_a_file_that_is_no_model(
    headway: Callable[..., Result], prompts: Callable[..., Path]
) -> None:
    expect_refusal(headway("generate", "hi", "--model", prompts(GOOD)), "it is a file")


def test_a_model_directory_with_a_broken_config(
    headway: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{")
    expect_refusal(headway("generate", "hi", "--model", tmp_path), "config.json cannot be read")


def test_an_unknown_model_names_close_ones(headway: Callable[..., Result]) -> None:
    expect_refusal(headway("generate", "hi", "--model", "smolm2"), "Did you mean 'smollm2'")


def test_an_unknown_plugin_names_close_ones(
    headway: Callable[..., Result], prompts: Callable[..., Path]
) -> None:
    path = prompts(GOOD)
    expect_refusal(headway("compare", "fcs", "--prompts", path), "'fcs'", "Did you mean 'fcfs'")
    expect_refusal(headway("generate", "hi", "--plugin", "priorty"), "Did you mean 'priority'")


def test_an_unknown_option_of_a_plugin(
    headway: Callable[..., Result], prompts: Callable[..., Path]
) -> None:
    result = headway("compare", "chunked_prefill(cup=3)", "--prompts", prompts(GOOD))
    expect_refusal(result, "cup", "chunked_prefill")


def test_two_owners_of_blocks(
    headway: Callable[..., Result], prompts: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "from framework import hookimpl\n"
        "class Mine:\n"
        "    @hookimpl\n"
        "    def allocate(self, request): return []\n"
        "    @hookimpl\n"
        "    def release(self, request): pass\n"
    )
    policy = f"kv_blocks+{tmp_path}/mine.py:Mine"
    expect_refusal(headway("compare", policy, "--prompts", prompts(GOOD)), "mine", "kv_blocks")


def test_a_misspelt_hook(
    headway: Callable[..., Result], prompts: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "from framework import hookimpl\n"
        "class Mine:\n"
        "    @hookimpl\n"
        "    def select_waitng(self, waiting): return None\n"
    )
    result = headway("compare", f"{tmp_path}/mine.py:Mine", "--prompts", prompts(GOOD))
    expect_refusal(result, "select_waitng", "select_waiting")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--num-blocks", "1"),
        ("--block-size", "0"),
        ("--max-num-seqs", "-1"),
        ("--max-num-batched-tokens", "0"),
        ("--max-model-len", "1"),
        ("--num-spec-tokens", "-1"),
        ("--seed", "-1"),
    ],
)
def test_a_limit_out_of_range(
    headway: Callable[..., Result], tmp_path: Path, option: str, value: str
) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
    result = headway("generate", "hi", "--model", tmp_path, option, value)
    expect_refusal(result, option.removeprefix("--").replace("-", "_"), f"got {value}")


def test_a_length_beyond_the_model(headway: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
    result = headway("generate", "hi", "--model", tmp_path, "--max-model-len", "65")
    expect_refusal(result, "max_model_len: got 65", "64")


def test_wrong_sampling_options(headway: Callable[..., Result]) -> None:
    expect_refusal(headway("generate", "hi", "--temperature", "-1"), "temperature: got -1")
    expect_refusal(headway("generate", "hi", "--max-tokens", "0"), "max_tokens: got 0")


def test_an_unknown_runner_or_dtype(headway: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    base = ("generate", "hi", "--model", tmp_path)
    expect_refusal(headway(*base, "--runner", "torhc"), "Did you mean 'torch'")
    for command in (base, ("serve",)):
        result = headway(*command, "--runner", "simulated")
        expect_refusal(result, "runner: got 'simulated', allowed: ", "scripted, torch, triton")
    expect_refusal(headway(*base, "--dtype", "float23"), "dtype: got 'float23'", "float32")


def test_every_other_runner_loads_models() -> None:
    pytest.importorskip("triton")
    runners = {entry.name: entry.load() for entry in entry_points(group=RUNNERS)}
    lacking = {name for name, runner in runners.items() if not hasattr(runner, "from_model")}
    assert lacking == set(WITHOUT_MODELS)


def test_a_json_file_that_cannot_be_written_is_refused_at_once(
    headway: Callable[..., Result], tmp_path: Path
) -> None:
    for path in (tmp_path, tmp_path / "none" / "out.json"):
        expect_refusal(headway("generate", "hi", "--json", path), str(path))


def test_a_folder_that_takes_no_files_is_refused_at_once(headway: Callable[..., Result]) -> None:
    for command in (("serve", "no-such-model"), ("generate", "hi")):
        result = headway(*command, "--json", "/proc/x")
        expect_refusal(result, "--json", "/proc/x: it cannot be written")


def test_unknown_commands_and_options(headway: Callable[..., Result]) -> None:
    expect_refusal(headway("genrate"), "genrate")
    expect_refusal(headway("plugins", "--jsn", "x"), "--jsn", "--json")
    expect_refusal(headway("compare", "--prompts", "demo"), "POLICY")


def test_a_folder_without_recordings(headway: Callable[..., Result], tmp_path: Path) -> None:
    expect_refusal(headway("oracle", tmp_path), "no recording")


def test_the_installed_command_says_it_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": ""}) + "\n{")
    command = Path(sys.executable).with_name("headway")
    done = subprocess.run(
        [command, "generate", "--prompts", path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"headway: error: {path} line 2: not JSON")
    assert done.stderr.count("\n") == 1
