"""Two tenants with work always waiting: a hot one with few prefixes, a cold one with many."""

from __future__ import annotations

from functools import cache

from attrs import define, field

from framework import Hit, Request, StepReport, hookimpl
from framework.study.fairness import OUTPUT_COST, Service
from framework.study.outcome import Outcome
from framework.study.run import default_config, simulate_policy
from framework.study.synthetic import make_workload
from tests.plugins.simulated import LATENCY

NUM_CACHED_PREFIXES = 8
SIZES = "n=500,prefix=1024,prompt=64,output=64"
SPEC = (
    f"closed:users=40,tenants=hot,prefixes=5,{SIZES} + "
    f"closed:users=40,tenants=cold,prefixes=35,{SIZES}"
)


@define(eq=False)
class Ledger:
    """Service in tokens that were computed: cached ones cost nothing."""

    service: Service = field(factory=lambda: Service({}), init=False)

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        self.service.waits(request.tenant, 1)

    @hookimpl
    def request_admitted(self, request: Request, hit: Hit) -> None:
        self.service.waits(request.tenant, -1)
        self.service.prompt(request.tenant, request.num_prompt_tokens - hit.num_tokens)

    @hookimpl
    def step_finished(self, report: StepReport) -> None:
        for request, tokens in report.tokens.items():
            assert request.tenant is not None
            self.service.of(request.tenant).service += OUTPUT_COST * tokens.decode
        self.service.advance()


@cache
def measured(policy: str, seed: int) -> tuple[Outcome, Service]:
    """What a policy comes to, and the service that was computed; the KV never runs out."""
    num_blocks = 64 * NUM_CACHED_PREFIXES + 80
    config = default_config(LATENCY, num_blocks=num_blocks, max_num_seqs=8)
    ledger = Ledger()
    workload = make_workload(SPEC, seed=seed)
    outcome = simulate_policy(workload, [policy, ledger], config=config, horizon=25).outcome
    assert not outcome.num_preemptions
    return outcome, ledger.service
