"""The README's lines about an engine of one's own work as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## An engine of your own, from Python\n")[2].partition("\n## ")[0]


@pytest.mark.model
def test_the_snippet_answers_and_swaps(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", SECTION, flags=re.DOTALL)
    script = tmp_path / "mine.py"
    script.write_text(snippet, encoding="utf-8")
    passive = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        env=passive,
        timeout=120,
    )
    text, _, stack = done.stdout.rpartition("[")
    assert len(text) > 20
    assert stack.strip().endswith("'vtc']")
