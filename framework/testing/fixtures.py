"""The pytest plugin: benchmarks of policies in anybody's repository.

    def test_chat(policy_benchmark, policy, workload):
        run = policy_benchmark(workload, policy)
        assert run.outcome.reasons == {"stop": len(workload.arrivals)}

    pytest my_bench.py --policy vtc --policy ./mine.py:Mine --benchmark-json=out.json

pytest-benchmark's columns show the wall time of the scheduler for the whole workload; `extra_info`
has the simulated metrics. Installed with Headway; nothing but this file needs pytest.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from framework.loading import Spec
    from framework.study.run import Run
    from framework.study.workload import Workload

DEFAULT_POLICY: Final = "fcfs"
DEFAULT_WORKLOAD: Final = "poisson:rate=8,n=400,prompt=lognormal(400,0.7),output=lognormal(100,0.8)"
ROUNDS: Final = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --policy."""
    parser.getgroup("headway", "policies of Headway").addoption(
        "--policy",
        action="append",
        metavar="NAME",
        default=[],
        help="a stack for the fixture `policy`: name, module:attribute, file.py:Name, one+another; "
        f"may be given several times (default: {DEFAULT_POLICY})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Offer the fixture `policy` with what --policy says; a fixture nearer to a test wins."""
    names = list(dict.fromkeys(config.getoption("policy"))) or [DEFAULT_POLICY]
    config.pluginmanager.register(_policies(names), "headway-policies")


def _policies(names: Sequence[str]) -> object:
    """A plugin of one fixture, whose parameters come from the command line."""

    class Policies:
        @pytest.fixture(params=names, ids=names)
        def policy(self, request: pytest.FixtureRequest) -> list[Spec]:
            """A stack, once for each --policy: a list for `simulate_policy` and `check_policy`."""
            from framework.stack import parse_stack  # noqa: PLC0415

            return list(parse_stack(request.param))

    return Policies()


@pytest.fixture
def workload() -> Workload:
    """Four hundred requests; define a fixture of this name for others."""
    from framework.study.synthetic import make_workload  # noqa: PLC0415

    return make_workload(DEFAULT_WORKLOAD)


@pytest.fixture
def policy_benchmark(request: pytest.FixtureRequest) -> Callable[..., Run]:
    """Simulate a policy on a workload: policy_benchmark(workload, policy, rounds=3, **options).

    The options are those of `framework.study.run.simulate_policy`; the last round's Run comes back.
    """
    clock = _SchedulerClock()
    request.node.add_marker(pytest.mark.benchmark(timer=clock))
    benchmark = request.getfixturevalue("benchmark")

    def measure(
        workload: Workload, policy: Sequence[Spec], *, rounds: int = ROUNDS, **options: Any
    ) -> Run:
        from framework.testing.proxies import fresh  # noqa: PLC0415

        if benchmark.group is None:
            benchmark.group = workload.name
        run: Run = benchmark.pedantic(
            clock.simulate,
            setup=lambda: ((workload, [fresh(spec) for spec in policy]), options),
            rounds=rounds,
        )
        benchmark.extra_info.update(_facts(run, workload))
        return run

    return measure


class _SchedulerClock:
    """A timer that stands still while something else than the scheduler works."""

    def __init__(self) -> None:
        self._outside = 0.0

    def __repr__(self) -> str:
        return "the scheduler's own time"

    def __call__(self) -> float:
        return perf_counter() - self._outside

    def simulate(self, workload: Workload, policy: Sequence[Spec], **options: Any) -> Run:
        from framework.study.run import simulate_policy  # noqa: PLC0415

        start = perf_counter()
        run = simulate_policy(workload, policy, **options)
        self._outside += perf_counter() - start - run.scheduler_s
        return run


def _facts(run: Run, workload: Workload) -> dict[str, Any]:
    """The simulated metrics; equal for equal arguments, on any machine."""
    return {
        "workload": workload.name,
        "workload_digest": workload.digest,
        "num_steps": run.outcome.num_steps,
        "outcome": run.outcome.as_dict(),
        "oracles": list(run.oracles),
    }
