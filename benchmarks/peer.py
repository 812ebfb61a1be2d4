"""The other side of a comparison: a script that another Python runs, one load at a time."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Runs under the other Python: reads [function, arguments], answers with what the function returns.
PEER = """
import importlib.util, json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
spec = importlib.util.spec_from_file_location("peer", sys.argv[1])
peer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peer)
peer.build_scheduler({})
import vllm
print(json.dumps({"version": vllm.__version__}), file=answers, flush=True)
for line in sys.stdin:
    function, arguments = json.loads(line)
    answer = getattr(peer, function)(1, *arguments)
    print(json.dumps(answer), file=answers, flush=True)
"""


class InputError(Exception):
    """Bad input; the text says what and where."""


class Peer:
    """The other Python, kept open: it imports once and runs each load in a process of its own."""

    def __init__(self, python: Path, script: Path) -> None:
        for option, path in (("--vllm-python", python), ("--peer-script", script)):
            if not path.is_file():
                raise InputError(f"{option}: {path} is not a file")
        self._python, self._script = python, script
        command = [str(python), "-c", PEER, str(script.absolute())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version: str = self._answer()["version"]

    def run(self, function: str, arguments: Sequence[Any]) -> dict[str, Any]:
        """Call a function of the script for one run; the summary it makes of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([function, list(arguments)]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the other process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise InputError(
                f"--vllm-python: {self._python} with {self._script} ended with status {status}; "
                f"its own words are above"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer
