"""Whether a ranking of policies survives a wrong latency model: each coefficient at +-20 %.

A pair of policies that differs by less than a per cent has no order to lose.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from framework.study.stats import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework.latency import LinearLatency

FACTORS = (0.8, 1.2)
RANKED = ("e2e_mean", "ttft_p50", "ttft_p99", "itl_p99")
TIE = 0.01


def variations(latency: LinearLatency) -> list[tuple[str, float, LinearLatency]]:
    """(term, factor, model) for each coefficient that is not 0."""
    return [
        (term, factor, latency.scaled(**{term: factor}))
        for term in latency.terms
        for factor in FACTORS
    ]


def judge_ranking(
    base: Mapping[str, Mapping[str, Any]],
    varied: Sequence[tuple[str, float, Mapping[str, Mapping[str, Any]]]],
) -> dict[str, Any]:
    """For each ranked metric: the ranking, whether it survives, and what turns around where.

    Args:
        base: {policy: outcome} with the model as it is.
        varied: (term, factor, {policy: outcome}) of each variation.
    """
    return {
        metric.name: _judge(
            {policy: metric.of(outcome) for policy, outcome in base.items()},
            [
                (term, factor, {policy: metric.of(each) for policy, each in outcomes.items()})
                for term, factor, outcomes in varied
            ],
        )
        for metric in METRICS
        if metric.name in RANKED
    }


def _judge(
    base: Mapping[str, float | None],
    varied: Sequence[tuple[str, float, Mapping[str, float | None]]],
) -> dict[str, Any]:
    known = {policy: value for policy, value in base.items() if value is not None}
    turned = []
    for one, other in combinations(known, 2):
        order = _order(known[one], known[other])
        for term, factor, values in varied:
            found = _order(values.get(one), values.get(other))
            if order and found and order != found:
                turned.append({"pair": [one, other], "term": term, "factor": factor})
    return {
        "ranking": sorted(known, key=lambda policy: (known[policy], list(known).index(policy))),
        "survives": not turned,
        "turned": turned,
        "values": [
            {"term": term, "factor": factor, "by_policy": dict(values)}
            for term, factor, values in varied
        ],
    }


def _order(one: float | None, other: float | None) -> int:
    """-1 or 1 where the first is clearly lower or higher, else 0."""
    if one is None or other is None or abs(one - other) <= TIE * max(abs(one), abs(other)):
        return 0
    return -1 if one < other else 1
