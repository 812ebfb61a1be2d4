from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result


def generate(
    headway: Callable[..., Result], model: Path, tmp_path: Path, *options: object
) -> dict[str, Any]:
    path = tmp_path / "out.json"
    result = headway("generate", "--model", model, "--json", path, *options)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert result.stdout.endswith(data["headline"] + "\n")
    return data


def outputs(data: dict[str, Any]) -> dict[str, list[int]]:
    return {each["id"]: each["output_token_ids"] for each in data["requests"]}


def test_every_request_is_told_in_the_order_of_the_file(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    options = ("--prompts", prompts_file, "--max-tokens", 9, "--ignore-eos")
    data = generate(headway, model_directory, tmp_path, *options)
    assert [each["id"] for each in data["requests"]] == ["a", "b", "c", "d"]
    assert [len(each["output_token_ids"]) for each in data["requests"]] == [9, 9, 9, 6]
    assert {each["finish_reason"] for each in data["requests"]} == {"length"}
    first = data["requests"][0]
    assert first["num_preemptions"] == 0 and first["ttft_s"] <= first["e2e_s"]


@pytest.mark.parametrize(
    "options",
    [
        ("--plugin", "priority"),
        ("--plugin", "spec_decode"),
        ("--plugin", "chunked_prefill(cap=5)"),
        ("--async-scheduling",),
        ("--num-blocks", 9, "--block-size", 8),
        ("--async-scheduling", "--plugin", "priority", "--plugin", "spec_decode"),
    ],
)
def test_no_option_changes_greedy_outputs(
    headway: Callable[..., Result],
    model_directory: Path,
    prompts_file: Path,
    tmp_path: Path,
    options: tuple[object, ...],
) -> None:
    base = ("--prompts", prompts_file, "--max-tokens", 24, "--ignore-eos")
    plain = generate(headway, model_directory, tmp_path, *base)
    other = generate(headway, model_directory, tmp_path, *base, *options)
    assert outputs(other) == outputs(plain)


def test_a_small_pool_preempts(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    options = ("--max-tokens", 24, "--ignore-eos", "--num-blocks", 9, "--block-size", 8)
    data = generate(headway, model_directory, tmp_path, "--prompts", prompts_file, *options)
    assert sum(each["num_preemptions"] for each in data["requests"]) > 0
    assert data["summary"]["num_preemptions"] == sum(
        each["num_preemptions"] for each in data["requests"]
    )


def test_a_shared_beginning_is_a_hit(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path, tmp_path: Path
) -> None:
    options = ("--max-tokens", 2, "--block-size", 8, "--max-num-seqs", 1)
    data = generate(headway, model_directory, tmp_path, "--prompts", prompts_file, *options)
    cached = {each["id"]: each["num_cached_tokens"] for each in data["requests"]}
    assert cached["a"] == 0
    assert cached["b"] == 24


def test_text_is_put_into_the_chat_template_unless_raw(
    headway: Callable[..., Result], model_directory: Path, tmp_path: Path
) -> None:
    chat = generate(headway, model_directory, tmp_path, "hi", "--max-tokens", 1)
    raw = generate(headway, model_directory, tmp_path, "hi", "--max-tokens", 1, "--raw")
    assert chat["requests"][0]["num_prompt_tokens"] == len("user: hi\nassistant: ")
    assert raw["requests"][0]["num_prompt_tokens"] == len("hi")


def test_logprobs_come_with_each_token(
    headway: Callable[..., Result], model_directory: Path, tmp_path: Path
) -> None:
    options = ("hi", "--max-tokens", 3, "--ignore-eos", "--logprobs", 2)
    (request,) = generate(headway, model_directory, tmp_path, *options)["requests"]
    assert [entry["rank"] for entry in request["logprobs"]] == [1, 1, 1]
    assert all(len(entry["top"]) == 2 for entry in request["logprobs"])


def test_what_can_never_fit_is_bad_input(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path
) -> None:
    base = ("generate", "--model", model_directory, "--prompts", prompts_file)
    result = headway(*base, "--max-tokens", 100, "--num-blocks", 4)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"headway: error: {prompts_file} line 1: ")
    assert "can never fit" in result.stderr


def test_a_prompt_over_the_length_limit_is_bad_input(
    headway: Callable[..., Result], model_directory: Path, prompts_file: Path
) -> None:
    base = ("generate", "--model", model_directory, "--prompts", prompts_file)
    result = headway(*base, "--max-model-len", 16)
    assert result.exit_code == 2
    assert "line 1" in result.stderr and "max_model_len 16" in result.stderr


def test_an_architecture_that_cannot_run_is_bad_input(
    headway: Callable[..., Result], tmp_path: Path
) -> None:
    fields = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    (tmp_path / "model.safetensors").write_bytes(b"")
    result = headway("generate", "hi", "--model", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith("headway: error: ") and str(tmp_path) in result.stderr
    assert result.stderr.count("\n") == 1
