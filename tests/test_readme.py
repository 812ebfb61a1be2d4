"""What the README says is true: the table of hooks, and the code it shows."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from framework import Request, SamplingParams, Scheduler, SchedulerConfig, hookspecs

README = (Path(__file__).parents[1] / "README.md").read_text()
HOOKS = [
    (name, function)
    for kind in hookspecs.KINDS
    for name, function in vars(kind).items()
    if inspect.isfunction(function)
]


@pytest.mark.parametrize(("name", "function"), HOOKS, ids=[name for name, _ in HOOKS])
def test_every_hook_has_its_row(name: str, function: object) -> None:
    parameters = [word for word in inspect.signature(function).parameters if word != "self"]
    sentence = (inspect.getdoc(function) or "").splitlines()[0].removesuffix(".")
    assert f"| `{name}({', '.join(parameters)})` | {sentence} |" in README


def test_the_table_names_no_other_hook() -> None:
    rows = re.findall(r"^\| `(\w+)\(", README, flags=re.MULTILINE)
    assert rows == [name for name, _ in HOOKS]


def test_the_ten_line_policy_changes_who_goes_first() -> None:
    snippet = next(code for code in _snippets() if "class ShortestFirst" in code)
    assert len(snippet.strip().splitlines()) <= 10
    namespace: dict[str, type] = {}
    exec(snippet, namespace)  # the README's own code
    scheduler = Scheduler(SchedulerConfig(), ["fcfs", namespace["ShortestFirst"]()])
    for name, length in (("long", 9), ("short", 3)):
        scheduler.add_request(Request(name, [1] * length, SamplingParams(max_tokens=1)))
    assert list(scheduler.schedule().num_scheduled_tokens) == ["short", "long"]


def test_the_research_snippet_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(next(code for code in _snippets() if "plan = scheduler.schedule()" in code), {})
    assert capsys.readouterr().out == "{'r0': 3}\n"


def _snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
