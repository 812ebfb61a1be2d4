"""What the policy promises, and what any policy must do."""

from __future__ import annotations

from headway_shortest_prompt import ShortestPrompt

from framework import SchedulerConfig
from framework.study.run import simulate_policy
from framework.study.synthetic import make_workload
from framework.testing import check_policy, make_requests, simulate


def test_it_conforms() -> None:
    check_policy([ShortestPrompt])


def test_the_shortest_prompt_goes_first() -> None:
    stack = ["kv_blocks", "chunked_prefill", ShortestPrompt()]
    requests = make_requests(3, prompt_len=[30, 20, 10], max_tokens=1)
    trace = simulate(stack, requests, SchedulerConfig(max_num_seqs=1))
    assert [list(planned) for planned in trace.planned if planned] == [["r2"], ["r1"], ["r0"]]


def test_the_median_wait_is_below_that_of_fcfs_under_load() -> None:
    workload = make_workload("poisson:rate=12,n=300,prompt=lognormal(900,1.0),output=20", seed=1)
    waits = [
        simulate_policy(workload, [policy]).outcome.ttft_s.p50 for policy in ("fcfs", _patient())
    ]
    assert waits[1] < 0.8 * waits[0]


def _patient() -> ShortestPrompt:
    return ShortestPrompt(seconds_per_token=0.01)
