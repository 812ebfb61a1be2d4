from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from framework import ConfigError, RequestError, SchedulerConfig, hookimpl
from framework.study.explaining import explain
from framework.study.recorded import Recorded
from framework.study.run import simulate_policy
from framework.study.workload import Arrival, Workload

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"block_size": 16, "max_num_batched_tokens": 256, "max_num_seqs": 4}
EVERY_NUMBER = re.compile(r"\d+\.\d+ s")


def arrive(name: str, time: float, prompt: int, output: int, **more: Any) -> Arrival:
    return Arrival(request_id=name, time=time, prompt_len=prompt, output_len=output, **more)


def lives(
    path: Path, *arrivals: Arrival, plugins: Any = ("fcfs",), num_blocks: int = 100, **limits: Any
) -> dict[str, list[str]]:
    """{request: its sentences, seconds left out}."""
    config = SchedulerConfig(num_blocks=num_blocks, **{**CONFIG, **limits})
    workload = Workload(name="hand-made", arrivals=arrivals)
    simulate_policy(workload, plugins, config=config, record=path / "run.hw")
    recorded = Recorded(path / "run.hw")
    return {
        each.request_id: [
            EVERY_NUMBER.sub("T", line) for line in explain(recorded, each.request_id)
        ]
        for each in arrivals
    }


def test_a_life_without_trouble(tmp_path: Path) -> None:
    told = lives(tmp_path, arrive("a", 1.0, 600, 3, tenant="x", priority=2))
    assert told["a"] == [
        "a of tenant x arrived at T with 600 prompt tokens, priority 2; it was to give 3, which "
        "only the runner knew.",
        "Admitted at step 0, at T, with nothing from the cache.",
        "First token at T, T after arrival; its prompt took 3 steps.",
        "Ended at T, T after arrival, with 3 tokens: it was complete.",
    ]


def test_a_request_without_a_slot_says_so(tmp_path: Path) -> None:
    told = lives(tmp_path, arrive("a", 0.0, 20, 9), arrive("b", 0.0, 20, 2), max_num_seqs=1)
    assert "Waited 9 steps, T: 9 x no free slot." in told["b"]


def test_a_request_without_memory_says_so(tmp_path: Path) -> None:
    told = lives(tmp_path, arrive("a", 0.0, 100, 5), arrive("b", 0.0, 100, 2), num_blocks=13)
    assert "Waited 5 steps, T: 5 x no memory." in told["b"]


def test_a_request_behind_others_names_them(tmp_path: Path) -> None:
    told = lives(
        tmp_path,
        arrive("a", 0.0, 20, 5),
        arrive("b", 0.0, 20, 5),
        arrive("c", 0.0, 20, 2),
        max_num_seqs=1,
    )
    assert "Waited 10 steps, T: 5 x outranked by b, a, 5 x no free slot." in told["c"]


def test_a_victim_tells_what_it_lost_and_why(tmp_path: Path) -> None:
    told = lives(tmp_path, arrive("a", 0.0, 60, 40), arrive("b", 0.0, 60, 40), num_blocks=12)
    assert any("(recompute, 80 tokens lost): blocks had run out." in line for line in told["b"])
    assert any(line.startswith("Admitted again at step") for line in told["b"])


def test_a_displaced_request_says_so(tmp_path: Path) -> None:
    told = lives(
        tmp_path,
        arrive("low", 0.0, 60, 40, priority=5),
        arrive("high", 0.1, 60, 4, priority=0),
        plugins=["priority(displace=True)"],
        max_num_seqs=1,
    )
    assert any("a waiting request took its place." in line for line in told["low"])


def test_tokens_from_the_cache_are_counted(tmp_path: Path) -> None:
    piece = ((1, 64),)
    told = lives(
        tmp_path, arrive("a", 0.0, 80, 2, prefix=piece), arrive("b", 1.0, 80, 2, prefix=piece)
    )
    assert any("with 64 tokens from the cache." in line for line in told["b"])


def test_steps_that_a_running_request_sat_out_are_counted(tmp_path: Path) -> None:
    class EvenSteps:
        @hookimpl
        def order_running(self, running: Any, step: Any) -> Any:
            return running if step.number % 2 else running[:1]

    told = lives(
        tmp_path,
        arrive("a", 0.0, 20, 9),
        arrive("b", 0.0, 20, 3),
        plugins=["fcfs", EvenSteps()],
    )
    assert "While it ran it got tokens in 3 steps and sat out 1." in told["b"]


def test_a_refused_request_says_why(tmp_path: Path) -> None:
    class Closed:
        @hookimpl
        def request_arrived(self, request: Any) -> None:
            raise RequestError("closed today")

    told = lives(tmp_path, arrive("a", 0.0, 20, 2), plugins=["fcfs", Closed()])
    assert told["a"] == ["a was refused on arrival: closed today."]


def test_an_unknown_request_is_told_with_its_neighbours(tmp_path: Path) -> None:
    lives(tmp_path, arrive("r12", 0.0, 20, 2))
    with pytest.raises(ConfigError, match=r"no request 'r13'\. Did you mean 'r12'"):
        explain(Recorded(tmp_path / "run.hw"), "r13")
