"""What a study says of several seeds: means with t-intervals, and paired differences.

One number of each run is one observation; requests of one run depend on each other, so nothing is
inferred from them. Policies ran on the same workload of each seed, so differences are paired.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""Quantiles of Student's t at .975 for 1 to 10 degrees of freedom."""


@frozen(kw_only=True)
class Metric:
    """One number of an outcome.

    Attributes:
        name: in results. title: in tables, with its unit.
        path: of keys in the outcome; a dict at its end is summed up.
        scale: what it is multiplied by in tables. digits: after the point there.
        lower: whether less is better; None = neither is.
        count: path of its sample count, or empty: then it is of the whole run.
    """

    name: str
    title: str
    path: tuple[str, ...]
    scale: float = 1.0
    digits: int = 2
    lower: bool | None = True
    count: tuple[str, ...] = ()

    def of(self, outcome: Mapping[str, Any]) -> float | None:
        """The number, or None where nothing can be said."""
        return _at(outcome, self.path)

    def sample_of(self, outcome: Mapping[str, Any]) -> int | None:
        """How many observations it is of."""
        found = _at(outcome, self.count) if self.count else None
        return None if found is None else int(found)


def _at(outcome: Mapping[str, Any], path: Sequence[str]) -> float | None:
    value: Any = outcome
    for key in path:
        value = value[key]
    if isinstance(value, dict):
        return float(sum(value.values()))
    return None if value is None else float(value)


def _of(name: str, title: str, field: str, key: str, **more: Any) -> Metric:
    return Metric(name=name, title=title, path=(field, key), count=(field, "count"), **more)


def _whole(name: str, title: str, **more: Any) -> Metric:
    return Metric(name=name, title=title, path=(name,), **more)


METRICS: tuple[Metric, ...] = (
    _of("ttft_p50", "TTFT p50 s", "ttft_s", "p50"),
    _of("ttft_p99", "TTFT p99 s", "ttft_s", "p99"),
    _of("tpot_p50", "TPOT p50 ms", "tpot_s", "p50", scale=1000, digits=1),
    _of("itl_p99", "ITL p99 ms", "itl_s", "p99", scale=1000, digits=1),
    _of("longest_gap", "longest gap s", "longest_gap_s", "max"),
    _of("e2e_mean", "E2E mean s", "e2e_s", "mean"),
    _of("normalised_mean", "E2E/token ms", "normalised_s", "mean", scale=1000, digits=1),
    _of("queueing_p50", "queueing p50 s", "queueing_s", "p50"),
    _whole("goodput", "goodput req/s", lower=False),
    _whole("attainment", "SLO met %", scale=100, digits=1, lower=False),
    _whole("output_tokens_per_s", "output tok/s", digits=0, lower=False),
    _whole("num_preemptions", "preempted", digits=0),
    _whole("recompute_tax", "recompute %", scale=100, digits=1),
    _whole("prefix_hit_rate", "hits %", scale=100, digits=1, lower=False),
    _whole("jain", "Jain", digits=3, lower=False),
    _whole("service_gap", "service gap", digits=0),
    _whole("mean_kv_use", "KV use %", scale=100, digits=1, lower=None),
    _whole("mean_running", "running", digits=1, lower=None),
)
"""Every number that is compared."""


@frozen(kw_only=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        n: seeds. mean: of them. low, high: of its 95 % t-interval, None below two seeds.
    """

    n: int
    mean: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """From one number of each seed, at least one."""
        mean = fmean(values)
        if len(values) < 2:
            return cls(n=len(values), mean=mean)
        half = t_quantile(len(values) - 1) * stdev(values) / sqrt(len(values))
        return cls(n=len(values), mean=mean, low=mean - half, high=mean + half)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return attrs.asdict(self)


def t_quantile(freedom: int) -> float:
    """Student's t at .975: a table up to 10, Cornish and Fisher's series above."""
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def summarise_runs(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each policy and load, in the order of the runs: {metric: estimate}."""
    return [
        {"policy": policy, "load": load, "metrics": _estimates([each["outcome"] for each in group])}
        for (policy, load), group in _groups(runs).items()
    ]


def pair_runs(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Differences of every policy to the first, seed by seed: {metric: estimate}."""
    groups = _groups(runs)
    pairs = []
    for (policy, load), group in groups.items():
        baseline = next(name for name, at in groups if at == load)
        if policy == baseline:
            continue
        before = {each["seed"]: each["outcome"] for each in groups[baseline, load]}
        both = [(before[each["seed"]], each["outcome"]) for each in group if each["seed"] in before]
        metrics = {
            metric.name: Estimate.of(found).as_dict()
            for metric in METRICS
            if (found := _differences(metric, both))
        }
        pairs.append({"policy": policy, "baseline": baseline, "load": load, "metrics": metrics})
    return pairs


def best_of(
    runs: Sequence[Mapping[str, Any]], name: str, load: float | None
) -> tuple[list[str], float, bool] | None:
    """Who has the lowest mean of a metric, the mean, and whether nobody else's could be lower.

    Without several seeds nothing is said of chance; with them the others' differences, seed by
    seed, must leave 0 out. None if nobody has the metric.
    """
    metric = next(each for each in METRICS if each.name == name)
    values = {
        policy: {
            run["seed"]: found for run in group if (found := metric.of(run["outcome"])) is not None
        }
        for (policy, at), group in _groups(runs).items()
        if at == load
    }
    means = {policy: fmean(by_seed.values()) for policy, by_seed in values.items() if by_seed}
    if not means:
        return None
    least = min(means.values())
    best = [policy for policy, mean in means.items() if mean == least]
    own = values[best[0]]
    is_sure = True
    for policy in means:
        differences = [values[policy][seed] - own[seed] for seed in own if seed in values[policy]]
        if policy not in best and len(differences) > 1:
            low = Estimate.of(differences).low
            is_sure = is_sure and low is not None and low > 0
    return best, least, is_sure


def _groups(
    runs: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, float | None], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, float | None], list[Mapping[str, Any]]] = {}
    for run in runs:
        if "outcome" in run:
            groups.setdefault((run["policy"], run["load"]), []).append(run)
    return groups


def _estimates(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = {}
    for metric in METRICS:
        values = [value for each in outcomes if (value := metric.of(each)) is not None]
        if not values:
            continue
        samples = [count for each in outcomes if (count := metric.sample_of(each)) is not None]
        found[metric.name] = {
            **Estimate.of(values).as_dict(),
            "samples": min(samples) if samples else None,
        }
    return found


def _differences(metric: Metric, both: Sequence[tuple[Any, Any]]) -> list[float]:
    pairs = [(metric.of(before), metric.of(after)) for before, after in both]
    return [after - before for before, after in pairs if before is not None and after is not None]
