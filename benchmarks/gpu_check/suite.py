"""The kernel tests themselves, on the GPU."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.gpu_check.conductor import ROOT
from benchmarks.gpu_check.part import Check, Figures, Item

if TYPE_CHECKING:
    from collections.abc import Iterator

ARGUMENTS = (
    *("-q", "--maxfail=10", "--tb=short", "-p", "no:cacheprovider", "-W", "default"),
    *(f"--ignore-glob=*{name}*" for name in ("test_gpu_check", "test_aot", "test_runner")),
)
"""Left out is what needs no GPU, or Headway installed."""

AT_ONCE = ("-n", "8")
TOY_TEST = "tests/kernels/test_store_kv.py"
CLOSING = re.compile(r"\d+ (passed|failed|error)")


def items(check: Check) -> Iterator[Item]:
    """One run of pytest."""
    yield Item("pytest", lambda: run(check))


def conclude(found: dict[str, Figures]) -> Figures:
    """No `passed`: the suite is rarely through when its time is over."""
    return {"closing": found.get("pytest", {}).get("closing")}


def run(check: Check) -> Figures:
    """Its closing line and where it failed."""
    if importlib.util.find_spec("pytest") is None:
        return {"closing": None, "reason": "there is no pytest here"}
    where = TOY_TEST if check.place.is_toy else "tests/kernels"
    mode = "interpret" if check.place.is_toy else "gpu"
    log = check.directory / "pytest.log"
    is_parallel = not check.place.is_toy and importlib.util.find_spec("xdist") is not None
    arguments = (*ARGUMENTS, *AT_ONCE) if is_parallel else ARGUMENTS
    timed_out = False
    with log.open("w") as output:
        try:
            subprocess.run(
                [sys.executable, "-m", "pytest", where, *arguments],
                cwd=ROOT,
                env={**os.environ, "KERNEL_TESTS": mode},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=max(1.0, check.left),
                check=False,
            )
        except subprocess.TimeoutExpired:
            timed_out = True
    lines = log.read_text().splitlines()
    return {
        "closing": next((line for line in reversed(lines) if CLOSING.search(line)), None),
        "out_of_time": timed_out,
        "failed": [line for line in lines if line.startswith(("FAILED", "ERROR"))],
        "last_lines": lines[-25:],
    }
