from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("psutil")
pytest.importorskip("uvicorn")

from tests.soak.checking import Transcript, fault_of
from tests.soak.memory import Growth, growth
from tests.soak.offline import Expected

GOOD = re.compile(
    r"lost=0 duplicated=0 wrong=0 leaked_blocks=0 rss_slope=-?\d+KB/min "
    r"streams=\d+ finished=\d+ aborted=\d+"
)
LEAKY = """
import sys
from attrs import define
from framework import hookimpl

KEPT = vars(sys).setdefault("kept_by_leaky", [])  # a swap reads this file again


@define(eq=False)
class Leaky:
    @hookimpl
    def request_arrived(self, request):
        KEPT.append(b"x" * 200_000)
"""
WANTED = [Expected(text="one two", finish_reason="length", num_tokens=2)]


def run_soak(*arguments: str | Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.soak", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=400, cwd=Path.cwd()
    )
    return done.returncode, done.stdout or done.stderr


def streamed(*events: str) -> Transcript:
    got = Transcript()
    for event in events:
        got.take_event(b"data: " + event.encode())
    return got


def chunk(text: str, reason: str | None = None) -> str:
    return json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": reason}]})


@pytest.mark.model
def test_a_server_under_clients_of_every_kind_loses_nothing_for_a_minute() -> None:
    status, told = run_soak("--streams", "100", "--seconds", "60")
    assert GOOD.fullmatch(told.splitlines()[-1]), told
    assert status == 0, told


@pytest.mark.model
def test_a_soak_sees_memory_that_grows(tmp_path: Path) -> None:
    file = tmp_path / "leaky.py"
    file.write_text(LEAKY)
    status, told = run_soak("--streams", "20", "--seconds", "10", "--plugin", f"{file}:Leaky")
    assert status == 1 and "GROWS" in told, told
    assert told.splitlines()[-1].startswith("lost=0 duplicated=0 wrong=0 leaked_blocks=0"), told


def test_a_stream_is_right_if_it_is_complete_and_equal() -> None:
    assert fault_of(streamed(chunk("one "), chunk("two", "length"), "[DONE]"), WANTED) is None


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        ("lost", [chunk("one two", "length")]),
        ("lost", [chunk("one two"), "[DONE]"]),
        ("lost", [chunk("one ", "length"), "[DONE]"]),
        ("lost", ['{"error": {"message": "the engine died"}}', "[DONE]"]),
        ("duplicated", [chunk("one two"), chunk(" two", "length"), "[DONE]"]),
        ("duplicated", [chunk("one two", "length"), "[DONE]", "[DONE]"]),
        ("duplicated", [chunk("one two", "length"), chunk("", "length"), "[DONE]"]),
        ("wrong", [chunk("one six", "length"), "[DONE]"]),
        ("wrong", [chunk("one two", "stop"), "[DONE]"]),
        (
            "wrong",
            [
                chunk("one two", "length"),
                '{"choices": [], "usage": {"completion_tokens": 3}}',
                "[DONE]",
            ],
        ),
    ],
)
def test_a_stream_that_is_not_says_how(kind: str, events: list[str]) -> None:
    fault = fault_of(streamed(*events), WANTED)
    assert fault is not None and fault.kind == kind, fault


def grown(kb_a_second: float, seconds: int) -> Growth:
    """Much during warm-up, then so much."""
    early = [(float(second), 400.0 * second) for second in range(seconds)]
    late = [(float(seconds + at), 400.0 * seconds + kb_a_second * at) for at in range(seconds)]
    return growth("front", early + late)


def test_growth_is_that_of_the_second_half() -> None:
    assert grown(0, 150).is_flat and grown(0, 150).slope_kb == pytest.approx(0, abs=10)
    found = grown(50, 150)  # of 60 MB, five per cent a minute
    assert not found.is_flat and found.slope_kb == pytest.approx(3000, rel=0.05)
    assert grown(50, 60).is_flat  # three megabytes: one step of the heap
    assert not grown(100, 60).is_flat
