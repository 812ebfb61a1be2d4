"""The command line: `python3 -m benchmarks.gpu_check --out DIR`.

Exit status: 0 = the kernels are right, and captured steps give the tokens of uncaptured ones;
1 = they do not, or that could not be found out; 2 = bad arguments.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.conductor import SECONDS, SHARES, Conductor
from benchmarks.gpu_check.part import Check, Record, open_place, run_part


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(
        prog="gpu_check",
        description="Check the Triton runner on this machine's GPU.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for gpu.json")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all parts together")
    parser.add_argument("--parts", default=",".join(SHARES), help="a choice of: %(default)s")
    parser.add_argument("--toy", action="store_true", help="on the CPU, at toy size")
    parser.add_argument("--part", choices=list(SHARES), help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.parts = options.parts.split(",")
    for name in options.parts:
        if name not in SHARES:
            parser.error(f"--parts: got {name!r}, allowed: {', '.join(SHARES)}")
    if options.seconds <= 0:
        parser.error(f"--seconds: got {options.seconds}, allowed: more than 0")
    return options


def main() -> int:
    """Conduct, or be the process of one part."""
    options = parsed()
    if options.part is None:
        conductor = Conductor(options.out, options.seconds, options.toy, options.parts)
        return int(not conductor.run())
    path = options.out / "part.json"
    check = Check(open_place(options.toy), options.out, options.deadline)
    try:
        part: Any = importlib.import_module(f"benchmarks.gpu_check.{options.part}")
    except Exception:
        Record(path, lambda _: {}).note("import", {"error": traceback.format_exc()})
        raise
    return run_part(part, check, Record.read(path, part.conclude))


if __name__ == "__main__":
    sys.exit(main())
