"""The scripted runner: tokens as the function says, time as the clock says, tables as the plan."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from framework import ConfigError, ModelError, Request, RunnerError, SamplingParams, Scheduler
from framework import SchedulerConfig as Config
from framework.output import CachedRequestData, NewRequestData, SchedulerOutput
from framework.testing import partly_right
from runners.scripted import ScriptedRunner, VirtualClock

if TYPE_CHECKING:
    from pathlib import Path

PROMPTS = {"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 9, 8, 7], "c": [6]}


def tokens(request_id: str, position: int) -> int:
    return 100 * (1 + "abc".index(request_id)) + position


def run(runner: ScriptedRunner, config: Config, stack: list[str]) -> dict[str, list[int]]:
    scheduler = Scheduler(config, stack, clock=runner.clock)
    params = SamplingParams(max_tokens=6)
    requests = [Request(name, prompt, params) for name, prompt in PROMPTS.items()]
    for request in requests:
        scheduler.add_request(request)
    while scheduler.has_requests():
        output = scheduler.schedule()
        scheduler.update_from_output(output, runner.execute(output))
    return {request.request_id: request.output_token_ids for request in requests}


def expected() -> dict[str, list[int]]:
    return {name: [tokens(name, position) for position in range(6)] for name in PROMPTS}


@pytest.mark.parametrize("num_spec_tokens", [0, 3])
def test_outputs_are_what_the_function_says(num_spec_tokens: int) -> None:
    config = Config(
        block_size=4, num_blocks=7, max_num_batched_tokens=6, num_spec_tokens=num_spec_tokens
    )
    stack = ["kv_blocks", "chunked_prefill", "fcfs"]
    if num_spec_tokens:
        stack.insert(2, "spec_decode(method='runner')")
    runner = ScriptedRunner(tokens, drafts=partly_right(tokens), block_size=4)
    assert run(runner, config, stack) == expected()


def test_right_drafts_save_steps_and_so_time() -> None:
    config = Config(num_spec_tokens=2)
    stack = ["kv_blocks", "chunked_prefill", "spec_decode(method='runner')", "fcfs"]

    def right(name: str, first: int, count: int) -> list[int]:
        return [tokens(name, first + offset) for offset in range(count)]

    times = []
    for drafts in (None, right):
        runner = ScriptedRunner(tokens, drafts=drafts, step_s=0.5)
        assert run(runner, config, stack) == expected()
        times.append(runner.clock.now())
    assert times == [3.0, 1.5]


def test_a_step_may_take_what_a_function_of_the_plan_says() -> None:
    runner = ScriptedRunner(tokens, step_s=lambda plan: 0.25 * plan.total_num_scheduled_tokens)
    assert run(runner, Config(), ["kv_blocks", "chunked_prefill", "fcfs"]) == expected()
    num_computed = sum(len(prompt) + 6 - 1 for prompt in PROMPTS.values())
    assert runner.clock.now() == 0.25 * num_computed


def test_a_step_without_tokens_takes_no_time() -> None:
    runner = ScriptedRunner(tokens)
    result = runner.execute(SchedulerOutput(0, {}, [], CachedRequestData(), 0))
    assert (result.sampled_token_ids, result.duration_s, runner.clock.now()) == ([], 0.0, 0.0)


def test_it_runs_without_an_owner_of_blocks() -> None:
    runner = ScriptedRunner(tokens, paged=False)
    assert run(runner, Config(), ["chunked_prefill", "fcfs"]) == expected()


def test_a_table_that_is_too_short_is_an_error() -> None:
    new = NewRequestData("a", [1, 2, 3, 4, 5], SamplingParams(), [1], 0)
    plan = SchedulerOutput(0, {"a": 5}, [new], CachedRequestData(), 5)
    with pytest.raises(RunnerError, match="no slot for position 4"):
        ScriptedRunner(tokens, block_size=4).execute(plan)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", True])
def test_time_moves_forward_by_numbers_only(seconds: object) -> None:
    with pytest.raises(ConfigError, match="seconds"):
        VirtualClock().advance(seconds)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="step_s"):
        ScriptedRunner(tokens, step_s=seconds)  # type: ignore[arg-type]


def test_a_model_directory_gives_its_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 11}))
    runners = [ScriptedRunner.from_model(tmp_path, Config(), seed=seed) for seed in (0, 0, 1)]
    drawn = [[runner.tokens("r", position) for position in range(50)] for runner in runners]
    assert (runners[0].vocab_size, set(drawn[0])) == (11, set(range(11)))
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"vocab_size": 0}', '{"vocab_size": "9"}'])
def test_a_directory_without_a_vocabulary_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match="vocab_size"):
        ScriptedRunner.from_model(tmp_path, Config())


def test_it_needs_no_torch() -> None:
    code = "import runners.scripted, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
