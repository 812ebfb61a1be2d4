"""What the policy costs and gains: pytest benchmarks --policy fcfs --policy shortest_prompt."""

from __future__ import annotations

import pytest

from framework.study.synthetic import make_workload


@pytest.fixture
def workload():
    """Prompts of very unlike lengths, near what the server can do."""
    return make_workload("poisson:rate=9,n=300,prompt=lognormal(800,1.0),output=lognormal(100,0.8)")


def test_prompts_of_unlike_lengths(policy_benchmark, policy, workload) -> None:
    run = policy_benchmark(workload, policy)
    assert run.outcome.reasons == {"stop": len(workload.arrivals)}
