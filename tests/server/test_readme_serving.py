"""The README's lines about serving work as printed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("openai")

from framework.cli.config_file import read_config
from framework.cli.serve import command
from tests.server.running import HEADWAY

if TYPE_CHECKING:
    from collections.abc import Callable

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## Serve\n")[2].partition("\n## ")[0]
PRINTED = "http://127.0.0.1:8000"
CURLS = [line for line in SECTION.replace("\\\n", "").splitlines() if "curl" in line]
ANSWERS: list[Callable[[str], bool]] = [
    lambda text: json.loads(text)["choices"][0]["message"]["content"] != "",
    lambda text: text.endswith("data: [DONE]\n\n") and text.count("data: ") > 10,
    lambda text: json.loads(text)["data"][0]["id"] == "smollm2",
    lambda text: json.loads(text) == {"status": "ok"},
    lambda text: 'vllm:time_to_first_token_seconds_count{model_name="smollm2"}' in text,
]


@pytest.mark.model
@pytest.mark.parametrize(("line", "is_right"), [*zip(CURLS, ANSWERS, strict=True)])
def test_the_curl_lines_work(real_url: str, line: str, is_right: Callable[[str], bool]) -> None:
    assert PRINTED in line
    asked = line.replace(PRINTED, real_url)
    done = subprocess.run(asked, shell=True, capture_output=True, text=True, check=True)
    assert is_right(done.stdout), done.stdout


@pytest.mark.model
def test_the_client_s_snippet_prints_an_answer(
    real_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", SECTION, flags=re.DOTALL)
    assert PRINTED in snippet
    namespace: dict[str, object] = {}
    exec(snippet.replace(PRINTED, real_url), namespace)  # the README's own code
    namespace["client"].close()  # type: ignore[attr-defined]
    assert len(capsys.readouterr().out) > 5


@pytest.mark.model
def test_the_swap_lines_work(real_url: str, tmp_path: Path) -> None:
    policy = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)[0]
    (tmp_path / "mine.py").write_text(policy)
    lines = [line.split() for line in SECTION.splitlines() if "headway swap " in line]
    for _, *arguments in [*lines, ["headway", "swap", "fcfs"]]:
        asked = [str(HEADWAY), *arguments, "--url", real_url]
        done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert " -> kv_blocks+chunked_prefill+" in done.stdout


def test_the_config_file_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", SECTION, flags=re.DOTALL)
    (tmp_path / "serve.toml").write_text(text)
    found = read_config(tmp_path / "serve.toml", command)
    assert found["model"] == "smollm2" and found["max_queue"] == 256
