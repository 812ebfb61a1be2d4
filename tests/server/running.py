"""`headway serve` as a process of its own, always ended."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADWAY = Path(sys.executable).with_name("headway")
LISTENING = "listening on "
PATIENCE_S = 120


@contextmanager
def running(*arguments: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """(url, process) of `headway serve ARGUMENTS` on a free port."""
    command = [str(HEADWAY), "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = first_line(process)
        assert line.startswith(LISTENING), f"got {line!r}"
        yield line.removeprefix(LISTENING).strip(), process
        if process.poll() is None:
            process.terminate()
            assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def first_line(process: subprocess.Popen[str]) -> str:
    """What it prints first; fails if that does not come in time."""
    assert process.stdout is not None
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 0.1)[0]:
            return process.stdout.readline()
    raise AssertionError("the server does not come up")
