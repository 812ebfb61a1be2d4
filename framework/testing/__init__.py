"""For tests of policies: run a stack with every check on, and replay recorded decisions.

    trace = simulate(["kv_blocks", MyPolicy()], make_requests(20, prompt_len=[5, 40]))
    assert trace.preempted == []

Needs no test framework.
"""

from __future__ import annotations

from framework.testing.differences import Difference, compare
from framework.testing.invariants import InvariantError, Invariants
from framework.testing.model import TokenRunner, default_tokens, partly_right
from framework.testing.oracle import Result, check_directory, replay_directory
from framework.testing.replay import Replay
from framework.testing.simulation import Trace, make_requests, run_alone, simulate

__all__ = [
    "Difference",
    "InvariantError",
    "Invariants",
    "Replay",
    "Result",
    "TokenRunner",
    "Trace",
    "check_directory",
    "compare",
    "default_tokens",
    "make_requests",
    "partly_right",
    "replay_directory",
    "run_alone",
    "simulate",
]
