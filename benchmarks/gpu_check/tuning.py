"""The tuner of kernel sizes, for the time that is left; its rows go to table.json."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.gpu_check.conductor import GRACE, ROOT
from benchmarks.gpu_check.part import Check, Figures, Item

if TYPE_CHECKING:
    from collections.abc import Iterator

START_UP = 10.0
"""Seconds that the tuner does not count: its imports, and its last launch."""


def items(check: Check) -> Iterator[Item]:
    """One run of the tuner."""
    yield Item("tuner", lambda: run(check), 0 if check.place.is_toy else 2 * START_UP)


def conclude(found: dict[str, Figures]) -> Figures:
    """Whether there is a table."""
    return {"has_table": found.get("tuner", {}).get("has_table", False)}


def run(check: Check) -> Figures:
    """What it said; without a GPU it says that it needs one."""
    table, log = check.directory / "table.json", check.directory / "tuner.log"
    command = [sys.executable, "-m", "runners.triton.tuner", "--out", str(table)]
    command += ["--seconds", str(max(1.0, check.left - START_UP))]
    timed_out = False
    with log.open("w") as output:
        try:
            subprocess.run(
                command,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=max(START_UP, check.left + GRACE / 2),
                check=False,
            )
        except subprocess.TimeoutExpired:
            timed_out = True
    lines = log.read_text().splitlines()
    return {"has_table": table.is_file(), "out_of_time": timed_out, "lines": lines[-60:]}
