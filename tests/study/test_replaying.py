from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from framework import ConfigError, HeadwayError, RunnerError, SchedulerConfig, hookimpl
from framework.study.recorded import Recorded
from framework.study.replaying import replay
from framework.study.run import simulate_policy
from framework.study.synthetic import make_workload
from runners.scripted import ScriptedRunner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from framework import RunnerOutput, SchedulerOutput

SPEC = "poisson:rate=30,n=24,prompt=uniform(5,60),output=uniform(2,30),prefixes=2,prefix=20"
CONFIG = SchedulerConfig(num_blocks=24, block_size=8, max_num_seqs=6, max_num_batched_tokens=48)
POLICIES = [("fcfs",), ("srpt", "oracle"), ("sarathi",), ("priority(displace=True)",)]


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Recorded]:
    def make(*plugins: Any, config: SchedulerConfig = CONFIG, **options: Any) -> Recorded:
        workload = make_workload(SPEC, seed=5, priority="0|5", max_len=150)
        simulate_policy(workload, plugins, config=config, record=tmp_path / "run.hw", **options)
        return Recorded(tmp_path / "run.hw")

    return make


@pytest.mark.parametrize("plugins", POLICIES, ids="+".join)
def test_a_replay_in_virtual_time_is_the_same_to_the_bit(
    record: Callable[..., Recorded], plugins: tuple[str, ...]
) -> None:
    recorded = record(*plugins)
    found = replay(recorded)
    assert found.parting is None and found.num_steps == sum(1 for _ in recorded.steps()) > 50


def test_noise_and_drafts_are_replayed_too(record: Callable[..., Recorded]) -> None:
    config = SchedulerConfig(num_blocks=40, block_size=8, num_spec_tokens=2)
    options = {"noise": 0.2, "seed": 7}
    assert replay(record("fcfs", config=config, runner_options=options)).parting is None


@pytest.mark.parametrize("plugins", POLICIES, ids="+".join)
def test_a_real_model_executes_the_recorded_plans(
    record: Callable[..., Recorded], plugins: tuple[str, ...]
) -> None:
    tiny = pytest.importorskip("tests.runners.tiny")
    from runners.torch_paged import TorchRunner  # noqa: PLC0415

    recorded = record(*plugins)
    assert any("victims" in step for step in recorded.steps())
    found = replay(
        recorded, runner=lambda config: TorchRunner(tiny.model("llama"), config, num_threads=1)
    )
    assert found.parting is None
    assert found.num_real_tokens == sum(each.output_len for each in recorded.workload.arrivals)


def test_chats_go_on_with_the_tokens_of_the_real_runner(tmp_path: Path) -> None:
    chats = "poisson:rate=30,n=24,turns=3,prompt=uniform(5,20),output=uniform(2,20),max_len=100"
    workload = make_workload(chats, seed=1)
    simulate_policy(workload, ["lpm"], config=CONFIG, record=tmp_path / "run.hw")
    found = replay(Recorded(tmp_path / "run.hw"), runner=lambda _: ScriptedRunner(block_size=8))
    assert found.parting is None and found.num_real_tokens


def test_a_runner_that_checks_each_slot_reads_what_it_wrote(
    record: Callable[..., Recorded],
) -> None:
    found = replay(record("srpt", "oracle"), runner=lambda _: ScriptedRunner(block_size=8))
    assert found.parting is None and found.num_real_tokens


class Forgetful(ScriptedRunner):
    """Samples nothing from step 9 on."""

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        result = super().execute(output)
        if output.step >= 9:
            result.sampled_token_ids = [[] for _ in result.sampled_token_ids]
        return result


def test_a_runner_that_samples_something_else_is_found(record: Callable[..., Recorded]) -> None:
    with pytest.raises(RunnerError, match=r"step \d+: request '.+' sampled 0 tokens on the runner"):
        replay(record("fcfs"), runner=lambda _: Forgetful(block_size=8))


class Content:
    """Decides by what was sampled, which no recording can promise."""

    name = "content"

    @hookimpl
    def order_running(self, running: Any) -> Any:
        return sorted(running, key=lambda request: request.all_token_ids[-1])


def test_a_policy_that_decides_by_content_parts_on_a_real_runner(
    record: Callable[..., Recorded],
) -> None:
    recorded = record("fcfs", Content())
    assert replay(recorded, ["fcfs", Content()]).parting is None
    found = replay(
        recorded, ["fcfs", Content()], runner=lambda _: ScriptedRunner(block_size=8, paged=False)
    )
    assert found.parting is not None and found.parting.field == "plan"


def test_another_policy_parts_where_it_decides_otherwise(record: Callable[..., Recorded]) -> None:
    found = replay(record("fcfs"), ["srpt", "oracle"])
    assert found.parting is not None and found.parting.step == found.num_steps
    assert str(found.parting).startswith(f"step {found.num_steps}, ")


def test_plugin_objects_are_named_and_must_be_given_anew(record: Callable[..., Recorded]) -> None:
    with pytest.raises(ConfigError, match=r"the objects content, allowed"):
        replay(record("fcfs", Content()))


def test_a_run_that_failed_fails_again(record: Callable[..., Recorded], tmp_path: Path) -> None:
    class Lazy:
        @hookimpl
        def order_running(self) -> tuple[()]:
            return ()

    with pytest.raises(HeadwayError, match="nothing can be scheduled"):
        record("fcfs", Lazy())
    found = replay(Recorded(tmp_path / "run.hw"), ["fcfs", Lazy()])
    assert found.parting is None


def test_drafts_cannot_be_forced_on_a_real_runner(record: Callable[..., Recorded]) -> None:
    config = SchedulerConfig(num_blocks=40, block_size=8, num_spec_tokens=2)
    with pytest.raises(ConfigError, match="num_spec_tokens: got 2, allowed: 0"):
        replay(record("fcfs", config=config), runner=lambda _: ScriptedRunner(block_size=8))


def test_what_is_no_recording_is_told(tmp_path: Path) -> None:
    (tmp_path / "no.hw").write_text("hello")
    with pytest.raises(ConfigError, match="cannot be read"):
        Recorded(tmp_path / "no.hw")
    with pytest.raises(ConfigError, match="cannot be read"):
        Recorded(tmp_path / "absent.hw")


@pytest.mark.parametrize("part", ["names", "config", "workload"])
def test_a_header_without_one_of_its_parts_is_told(
    record: Callable[..., Recorded], tmp_path: Path, part: str
) -> None:
    header = {name: value for name, value in record("fcfs").header.items() if name != part}
    with gzip.open(tmp_path / "odd.hw", "wt") as file:
        file.write(f"{json.dumps(header)}\n")
    with pytest.raises(ConfigError, match="it is no recording"):
        Recorded(tmp_path / "odd.hw")


def test_a_file_that_breaks_off_is_read_up_to_there(
    record: Callable[..., Recorded], tmp_path: Path
) -> None:
    whole = record("fcfs")
    num_steps = sum(1 for _ in whole.steps())
    (tmp_path / "cut.hw").write_bytes(whole.path.read_bytes()[:-600])
    cut = Recorded(tmp_path / "cut.hw")
    assert 0 < sum(1 for _ in cut.steps()) < num_steps and not cut.last
