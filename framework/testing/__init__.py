"""For tests of policies: run a stack with every check on, and replay recorded decisions.

    trace = simulate(["kv_blocks", MyPolicy()], make_requests(20, prompt_len=[5, 40]))
    assert trace.preempted == []

    check_policy([MyPolicy])

Needs no test framework. Names are loaded when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framework.testing.conformance import ConformanceError, Report, check_policy
    from framework.testing.differences import Difference, compare
    from framework.testing.invariants import InvariantError, Invariants
    from framework.testing.model import TokenRunner, default_tokens, partly_right
    from framework.testing.oracle import Result, check_directory, replay_directory
    from framework.testing.replay import Replay
    from framework.testing.simulation import Trace, make_requests, run_alone, simulate

__all__ = [
    "ConformanceError",
    "Difference",
    "InvariantError",
    "Invariants",
    "Replay",
    "Report",
    "Result",
    "TokenRunner",
    "Trace",
    "check_directory",
    "check_policy",
    "compare",
    "default_tokens",
    "make_requests",
    "partly_right",
    "replay_directory",
    "run_alone",
    "simulate",
]

_HOME = {
    "conformance": ("ConformanceError", "Report", "check_policy"),
    "differences": ("Difference", "compare"),
    "invariants": ("InvariantError", "Invariants"),
    "model": ("TokenRunner", "default_tokens", "partly_right"),
    "oracle": ("Result", "check_directory", "replay_directory"),
    "replay": ("Replay",),
    "simulation": ("Trace", "make_requests", "run_alone", "simulate"),
}


def __getattr__(name: str) -> Any:
    """The pytest plugin lives here too, and must cost nothing where it is not used."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"framework.testing.{module}"), name)
    raise AttributeError(f"module 'framework.testing' has no attribute {name!r}")
