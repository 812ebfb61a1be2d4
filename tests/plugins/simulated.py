"""One stack on one workload in virtual time, for the tests of policies."""

from __future__ import annotations

from typing import Any

from framework import Request, hookimpl
from framework.latency import load_latency
from framework.metrics import Distribution
from framework.study.run import DEFAULT_LATENCY, Run, default_config, simulate_policy
from framework.study.synthetic import make_workload

SEEDS = (0, 1, 2)
LATENCY = load_latency(DEFAULT_LATENCY)


def simulated(stack: str, spec: str, seed: int = 0, **limits: Any) -> Run:
    """A run; the stack as on a command line, joined by +."""
    workload = make_workload(spec, seed=seed)
    return simulate_policy(workload, stack.split("+"), config=default_config(LATENCY, **limits))


def mean(distribution: Distribution) -> float:
    """Its mean, which must be there."""
    assert distribution.mean is not None
    return distribution.mean


class Digits:
    """Predicts the number that ends a request's id, or nothing."""

    @hookimpl
    def predict_output_len(self, request: Request) -> float | None:
        digits = request.request_id[1:]
        return float(digits) if digits.isdigit() else None
