"""The `headway` command in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from framework.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result


@pytest.fixture
def headway() -> Callable[..., Result]:
    """Run the command in this process: headway("generate", ...)."""
    return lambda *arguments: CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def prompts_file(tmp_path: Path) -> Path:
    """Four prompts of two priorities; two of them share a beginning."""
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"id": "a", "prompt": "one two three four five six seven", "priority": 5},
        {"id": "b", "prompt": "one two three four five six eight", "arrival_s": 0.05},
        {"id": "c", "messages": [{"role": "user", "content": "tell me"}], "priority": 5},
        {"id": "d", "prompt_token_ids": [1, 2, 3, 1, 2, 3, 1, 2, 3], "max_tokens": 6},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
