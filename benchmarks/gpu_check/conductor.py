"""Runs the parts, each in a process of its own, and keeps what they find in gpu.json.

So a kernel that hangs, crashes or leaves the GPU unusable costs its own part some seconds, and a
kill of all of it costs only the item that was running.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from attrs import define, field

from benchmarks.gpu_check import goals

SECONDS = 470.0
SHARES = {
    "machine": 25.0,
    "correctness": 100.0,
    "bandwidth": 70.0,
    "decode": 130.0,
    "peer": 70.0,
    "suite": 50.0,
    "tuning": SECONDS,  # what the others leave
}
"""The parts in their order, and seconds of SECONDS that each may take at most."""

GRACE = 8.0
"""Seconds after its time that a part is ended."""

FEWEST = 12.0
"""Seconds under which no process is started: it would only import."""

GO_ON, NO_DEVICE = 3, 4
"""Exit statuses of a part: the rest needs a fresh process; there is no GPU."""

STARTED = "GPU_CHECK_STARTED"
ROOT = Path(__file__).parents[2]


def say(text: str) -> None:
    """A line of progress, with the time since the start."""
    elapsed = time.time() - float(os.environ.get(STARTED, time.time()))
    print(f"[{elapsed:6.1f} s] {text}", flush=True)


def _read(path: Path) -> dict[str, Any]:
    """What a part has found so far."""
    if not path.is_file():
        return {"items": {}, "conclusion": {}}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@define(eq=False)
class Conductor:
    """One run of the check.

    Args:
        directory: for gpu.json and what parts add.
        seconds: for everything.
        is_toy: on the CPU, at toy size.
        parts: the names of those that are to run.
    """

    directory: Path
    seconds: float
    is_toy: bool
    parts: list[str]
    results: dict[str, Any] = field(factory=dict, init=False)
    started: float = field(factory=time.time, init=False)

    def run(self) -> bool:
        """Whether everything that decides passed."""
        os.environ[STARTED] = str(self.started)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "gpu.json").unlink(missing_ok=True)
        try:
            for name in self.parts:
                if not self._run_part(name):
                    break
        finally:
            self._write(is_finished=True)
        print(goals.table(self._compared()), flush=True)
        passed = self._passed()
        say(f"passed: {passed}; {self.directory / 'gpu.json'}")
        return passed is True

    @property
    def _left(self) -> float:
        return self.started + self.seconds - time.time()

    def _run_part(self, name: str) -> bool:
        """One part, over as many processes as it takes; False if no other can run either."""
        begun = time.time()
        share = min(SHARES[name] * self.seconds / SECONDS, self._left)
        found = self.directory / "part.json"
        found.unlink(missing_ok=True)
        status, kept = None, _read(found)
        while (left := begun + share - time.time()) > min(FEWEST, share / 2):
            say(f"{name}: {left:.0f} s")
            status = self._run_process(name, begun + share, left + GRACE)
            before, kept = kept, _read(found)
            if status in (0, None, NO_DEVICE) or len(kept["items"]) == len(before["items"]):
                break
        ended = {0: "complete", None: "out of time"}.get(status, f"ended with status {status}")
        self.results[name] = {"ended": ended, "seconds": round(time.time() - begun, 1), **kept}
        found.unlink(missing_ok=True)
        self._write(is_finished=False)
        return status != NO_DEVICE

    def _run_process(self, name: str, deadline: float, limit: float) -> int | None:
        """Its exit status; None if it had to be ended."""
        command = [sys.executable, "-m", "benchmarks.gpu_check", "--out", str(self.directory)]
        command += ["--part", name, "--deadline", str(deadline)]
        if self.is_toy:
            command.append("--toy")
        try:
            return subprocess.run(
                command, cwd=ROOT, env=self._environment(), timeout=limit, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            say(f"{name}: ended, over its time")
            return None

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
        environment.pop("TRITON_INTERPRET", None)
        return {**environment, "TRITON_INTERPRET": "1"} if self.is_toy else environment

    def _write(self, *, is_finished: bool) -> None:
        text = json.dumps(
            {
                "toy": self.is_toy,
                "finished": is_finished,
                "passed": self._passed(),
                "seconds": round(time.time() - self.started, 1),
                "goals": self._compared(),
                "parts": self.results,
            },
            indent=1,
        )
        temporary = self.directory / "gpu.json.new"
        temporary.write_text(text + "\n")
        temporary.replace(self.directory / "gpu.json")

    def _passed(self) -> bool | None:
        """Kernels right, and no captured step that differs; None if kernels were not all tried."""
        checked = self.results.get("correctness", {"ended": "not run"})
        if checked["ended"] != "complete":
            return None
        compared = self.results.get("decode", {}).get("conclusion", {}).get("passed")
        return bool(checked["conclusion"].get("passed")) and compared is not False

    def _compared(self) -> list[dict[str, Any]]:
        return goals.compare({name: part["items"] for name, part in self.results.items()})
