"""From a scenario that fails to a small one that fails in the same way, by Hypothesis.

Each request is kept or dropped, each number kept or made smaller. The draws lean towards leaving
all as it is, so that the first examples fail; Hypothesis then shrinks towards less.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import attrs

from framework.config import SchedulerConfig
from framework.errors import ConfigError
from framework.request import Slo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from framework.study.workload import Arrival
    from framework.testing.scenarios import Scenario

KEPT: Final = 80
"""How much likelier it is that a thing stays as it is than that it becomes one certain other."""
MOST_TRIES: Final = 300
LONGEST_S: Final = 10.0
MOST_REQUESTS: Final = 60
"""Where more are needed, as in a flood, fewer would not show the fault."""
LIMITS: Final = ("max_num_batched_tokens", "max_num_seqs", "num_blocks")


class _Enough(BaseException):
    """Enough was tried; nothing that Hypothesis may catch."""


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """The smallest failing scenario that was found; the given one if Hypothesis is missing.

    First requests are left out, then what is left of them is made smaller.
    """
    if len(scenario.arrivals) > MOST_REQUESTS or find_spec("hypothesis") is None:
        return scenario
    for strategy in (_fewer, _smaller):
        scenario = _smallest(scenario, strategy(scenario), fails)
    return scenario


def _smallest(scenario: Scenario, strategy: Any, fails: Callable[[Scenario], bool]) -> Scenario:
    import hypothesis  # noqa: PLC0415

    best, num_tries, start = scenario, 0, perf_counter()

    def fails_still(candidate: Scenario | None) -> bool:
        nonlocal best, num_tries
        num_tries += 1
        if num_tries > MOST_TRIES or perf_counter() - start > LONGEST_S:
            raise _Enough
        if candidate is None or not fails(candidate):
            return False
        if candidate.size < best.size:
            best = candidate
        return True

    settings = hypothesis.settings(
        max_examples=60,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            hypothesis.find(strategy, fails_still, settings=settings, random=Random(0))
        except (_Enough, hypothesis.errors.HypothesisException):
            return best  # what was found so far is good enough
    return best


def _choose(draw: Any, smaller: Sequence[Any], kept: Any) -> Any:
    """One of the smaller ones, or much likelier what there is."""
    from hypothesis import strategies  # noqa: PLC0415

    choices = [*dict.fromkeys(each for each in smaller if each != kept), *[kept] * KEPT]
    return draw(strategies.sampled_from(choices))


def _fewer(scenario: Scenario) -> Any:
    """A strategy: the scenario with some requests left out; None where nobody is left."""
    from hypothesis import strategies  # noqa: PLC0415

    @strategies.composite
    def build(draw: Any) -> Scenario | None:
        kept = [each for each in scenario.arrivals if _choose(draw, [False], True)]
        return _assembled(scenario, kept, {})

    return build()


def _smaller(scenario: Scenario) -> Any:
    """A strategy: the scenario with smaller numbers, or one request less."""
    from hypothesis import strategies  # noqa: PLC0415

    @strategies.composite
    def build(draw: Any) -> Scenario | None:
        arrivals = [
            _less_of(arrival, lambda smaller, kept: _choose(draw, smaller, kept))
            for arrival in scenario.arrivals
            if _choose(draw, [False], True)
        ]
        limits = {}
        for name in LIMITS:
            kept = getattr(scenario.config, name)
            limits[name] = _choose(draw, _powers(kept), kept)
        return _assembled(scenario, arrivals, limits)

    return build()


def _less_of(arrival: Arrival, choose: Callable[[Sequence[Any], Any], Any]) -> Arrival:
    prompt_len = choose(_powers(arrival.prompt_len), arrival.prompt_len)
    prefix = choose([()], arrival.prefix)
    return attrs.evolve(
        arrival,
        time=choose([0.0], arrival.time),
        prompt_len=prompt_len,
        output_len=choose(_powers(arrival.output_len), arrival.output_len),
        prefix=prefix if sum(size for _, size in prefix) < prompt_len else (),
        tenant=choose([None], arrival.tenant),
        priority=choose([0], arrival.priority),
        slo=choose([None, Slo(ttft_s=1.0)], arrival.slo),
    )


def _powers(number: int) -> list[int]:
    """Powers of two below a number."""
    return [1 << exponent for exponent in range(number.bit_length()) if 1 << exponent < number]


def _assembled(
    scenario: Scenario, arrivals: list[Arrival], limits: dict[str, int]
) -> Scenario | None:
    """The scenario, unless a request could never run in it, which would be another failure."""
    try:
        fields: Any = {**attrs.asdict(scenario.config), **limits}
        config = SchedulerConfig.from_mapping(fields)
    except ConfigError:
        return None
    if not arrivals:
        return None
    arrivals.sort(key=lambda each: each.time)
    most = max(each.prompt_len + each.output_len for each in arrivals)
    if most > (config.num_blocks - 1) * config.block_size:
        return None
    return attrs.evolve(scenario, arrivals=arrivals, config=config, maker="")
