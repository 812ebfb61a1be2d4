"""Capacity: the highest rate of a workload that a policy can hold, by two measures.

`saturated_rate` is the rate at which requests end while all of them wait: what a load is a fraction
of. `find_capacity` is the highest rate that keeps a promise, as Sarathi-Serve measures it (Agrawal
et al., OSDI 2024: P99 of the gaps between tokens within 0.2 s, and median queueing within 2 s).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from attrs import evolve, field, frozen

from framework.errors import ConfigError, HeadwayError, bad_field
from framework.study.outcome import SERVED
from framework.study.pool import run_jobs
from framework.study.source import rate_to_vary
from framework.study.stats import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from framework.study.job import Job

NUM_SATURATED = 2000
"""Requests of a saturated run: many times those that run at once."""
MIDDLE = (0.2, 0.8)
TOLERANCE = 0.02
RANGE = 1000.0
"""How far below and above its own rate a workload is tried."""


def _above_zero(_: object, attribute: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and not value > 0:
        raise bad_field(attribute.name, value, "seconds above 0, or None")


@frozen(kw_only=True)
class Promise:
    """What must hold at a rate. Seconds and a share; None = anything may be.

    Attributes:
        itl_p99: of the gaps between tokens. queueing_p50: from arrival to first admission.
        ttft_p99: to the first token. attainment: of requests that keep their own SLO.
    """

    itl_p99: float | None = field(default=0.2, validator=_above_zero)
    queueing_p50: float | None = field(default=2.0, validator=_above_zero)
    ttft_p99: float | None = field(default=None, validator=_above_zero)
    attainment: float | None = None

    def holds(self, outcome: Mapping[str, Any]) -> bool:
        """Whether an outcome keeps it, and everybody was served."""
        if not set(outcome["reasons"]) <= set(SERVED):
            return False
        values = {metric.name: metric.of(outcome) for metric in METRICS}
        for name, limit in attrs.asdict(self, recurse=False).items():
            value = values[name]
            if limit is None or value is None:
                continue
            if value < limit if name == "attainment" else value > limit:
                return False
        return True


def saturated_rate(job: Job, progress: Callable[[int], object] | None = None) -> dict[str, Any]:
    """`rate` at which a job's first requests end if all come at once; few ones are repeated.

    It is taken over the middle of the ends, where neither the first batch fills nor the last one
    empties.
    """
    saturated = evolve(job, factor=0.0, repeat_to=NUM_SATURATED, has_curves=True)
    done = run_jobs([saturated], progress=progress)[0]
    if done.error is not None:
        raise HeadwayError(f"the capacity cannot be measured: {done.error}")
    record = done.record
    num_served = record["outcome"]["e2e_s"]["count"]
    if not num_served:
        why = next(iter(record["errors"].values()), str(record["outcome"]["reasons"]))
        raise HeadwayError(f"the capacity cannot be measured: nobody was served: {why}")
    start, end = (
        next(time for time, share in record["curves"]["cdf"]["end_s"] if share >= bound)
        for bound in MIDDLE
    )
    if end <= start:
        raise HeadwayError("the capacity cannot be measured: too few requests, or all end at once")
    rate = (MIDDLE[1] - MIDDLE[0]) * num_served / (end - start)
    return {"rate": rate, "policy": job.policy, "num_requests": NUM_SATURATED}


def find_capacity(
    job: Job,
    promise: Promise,
    *,
    num_processes: int = 1,
    tolerance: float = TOLERANCE,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """The highest rate that keeps a promise, by sections of the interval that holds it.

    Each round tries as many rates as there are processes, so two of them bisect twice as finely.

    Args:
        job: the policy and its workload; its factor is what is varied.
        promise: what must hold.
        num_processes: rates tried at once.
        tolerance: of the rate, as a share of it.
        progress: told how many requests have just ended.

    Returns:
        `rate` (requests a second; None if the promise never held), `next_rate` (the lowest that
        is known to break it), and every `trial`.

    Raises:
        ConfigError: the workload has no rate. HeadwayError: the policy failed.
    """
    workload = job.source.workload(job.seed)
    if promise.attainment is not None and all(each.slo is None for each in workload.arrivals):
        raise ConfigError("attainment: no request of the workload has an SLO to keep; give some")
    search = _Search(job, promise, rate_to_vary(job.source, workload))
    low, high = 0.0, float("inf")
    rates = _spread(search.natural / 4, search.natural * 4, num_processes)
    while rates and search.natural / RANGE < rates[0] and rates[-1] < search.natural * RANGE:
        for rate, kept in search.try_rates(rates, num_processes, progress):
            if not kept:
                high = rate
                break
            low = rate
        if high == float("inf"):
            rates = [low * 2 ** (step + 1) for step in range(num_processes)]
        elif low == 0.0:
            rates = [high / 2 ** (step + 1) for step in reversed(range(num_processes))]
        else:
            rates = _spread(low, high, num_processes) if high / low - 1 > tolerance else []
    return {
        "rate": low or None,
        "next_rate": None if high == float("inf") else high,
        "natural_rate": search.natural,
        "promise": attrs.asdict(promise),
        "trials": sorted(search.trials, key=lambda trial: float(trial["rate"])),
    }


def _spread(low: float, high: float, count: int) -> list[float]:
    """So many rates between two, evenly by ratio."""
    return [low * (high / low) ** ((step + 1) / (count + 1)) for step in range(count)]


@attrs.define(eq=False)
class _Search:
    job: Job
    promise: Promise
    natural: float
    trials: list[dict[str, Any]] = attrs.field(factory=list, init=False)

    def try_rates(
        self,
        rates: list[float],
        num_processes: int,
        progress: Callable[[int], object] | None,
    ) -> list[tuple[float, bool]]:
        """(rate, kept) in rising order; a policy that fails keeps nothing."""
        jobs = [evolve(self.job, factor=self.natural / rate) for rate in rates]
        kept = []
        for rate, done in zip(rates, run_jobs(jobs, num_processes, progress), strict=True):
            if done.error is not None:
                raise HeadwayError(f"{self.job.policy} at {rate:.3g} requests/s: {done.error}")
            outcome = done.record["outcome"]
            holds = self.promise.holds(outcome)
            kept.append((rate, holds))
            metrics = {metric.name: metric.of(outcome) for metric in METRICS}
            self.trials.append({"rate": rate, "kept": holds, "metrics": metrics})
        return kept
