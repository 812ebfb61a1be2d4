"""Outcome: what a run in virtual time comes to. Every latency counts from arrival.

TTFT: first output - arrival. Queueing: first admission - arrival. TPOT: (last - first output) /
(outputs - 1), not defined for one output. ITL: every gap between outputs, pooled, and the longest
gap of each request. E2E: end - arrival. Normalised latency: E2E / outputs (Yu et al., OSDI 2022).
Goodput: requests a second that keep all their promises; unfinished, refused, rejected and aborted
ones keep none, and count in the SLO attainment.
"""

from __future__ import annotations

from collections import Counter
from math import isnan
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen

from framework.metrics import SHARES, Distribution

if TYPE_CHECKING:
    from framework.scheduler import Scheduler
    from framework.study.meter import Meter

SERVED = ("stop", "length")
"""How a request ends that got its output."""


@frozen(kw_only=True)
class Outcome:
    """One run. Seconds and tokens; None where nothing can be said.

    Attributes:
        num_requests: that arrived; reasons: how they ended, {reason: count}.
        duration_s: virtual time from 0 to the end.
        ttft_s, tpot_s, e2e_s, queueing_s, normalised_s, longest_gap_s: of requests.
        itl_s: of gaps, from a histogram with bins of 1 %.
        goodput: requests a second that kept all their promises; attainment: their share.
        output_tokens_per_s, requests_per_s: served.
        num_preemptions: by mode. recompute_tax: tokens computed again over all tokens computed.
        prefix_hit_rate: of prompt tokens at first admissions.
        mean_kv_use, mean_running: over time. num_steps: of the scheduler.
        service: of tenants, by tenant; jain: how even it was while they competed; service_gap:
            largest difference of two tenants while both had work waiting. See `fairness`.
        ttft_by_tenant_s: of each tenant's requests.
    """

    num_requests: int
    reasons: dict[str, int]
    duration_s: float
    ttft_s: Distribution
    tpot_s: Distribution
    e2e_s: Distribution
    queueing_s: Distribution
    normalised_s: Distribution
    longest_gap_s: Distribution
    itl_s: Distribution
    goodput: float
    attainment: float | None
    output_tokens_per_s: float
    requests_per_s: float
    num_preemptions: dict[str, int]
    recompute_tax: float
    prefix_hit_rate: float | None
    mean_kv_use: float | None
    mean_running: float | None
    num_steps: int
    service: dict[str, float]
    jain: float | None
    service_gap: float
    ttft_by_tenant_s: dict[str, Distribution]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json` files."""
        return attrs.asdict(self)


def outcome_of(meter: Meter, scheduler: Scheduler) -> Outcome:
    """Sum up a run that is over."""
    columns, counters = meter.columns, scheduler.counters
    reasons = Counter(ended.reason for ended in meter.ended)
    num_served = sum(reasons[reason] for reason in SERVED)
    num_kept = sum(ended.meets_slo for ended in meter.ended)
    num_asked = len(meter.ended) + meter.num_unseen
    lost = counters.num_lost_tokens - counters.num_prefix_hit_again
    span = meter.end or 1.0
    return Outcome(
        num_requests=len(meter.ended),
        reasons=dict(sorted(reasons.items())),
        duration_s=meter.end,
        ttft_s=_of(columns["ttft"]),
        tpot_s=_of(columns["tpot"]),
        e2e_s=_of(columns["e2e"]),
        queueing_s=_of(columns["queueing"]),
        normalised_s=_of(
            e2e / size for e2e, size in zip(columns["e2e"], columns["output_len"], strict=True)
        ),
        longest_gap_s=_of(columns["longest_gap"]),
        itl_s=_gaps(meter),
        goodput=num_kept / span,
        attainment=num_kept / num_asked if num_asked else None,
        output_tokens_per_s=counters.num_sampled_tokens / span,
        requests_per_s=num_served / span,
        num_preemptions=dict(sorted(meter.preemptions.items())),
        recompute_tax=max(0, lost) / max(1, counters.num_scheduled_tokens),
        prefix_hit_rate=(
            meter.num_cached_tokens / meter.num_prompt_tokens if meter.num_prompt_tokens else None
        ),
        mean_kv_use=meter.series.mean_kv_use,
        mean_running=meter.series.mean_running,
        num_steps=counters.num_steps,
        service=meter.service.totals,
        jain=meter.service.jain,
        service_gap=meter.service.gap,
        ttft_by_tenant_s=_by_tenant(meter),
    )


def _of(values: Any) -> Distribution:
    """NaN = has not happened."""
    return Distribution.of(value for value in values if not isnan(value))


def _gaps(meter: Meter) -> Distribution:
    gaps = meter.gaps
    if not gaps.count:
        return Distribution()
    p50, p90, p95, p99 = (gaps.percentile(share) for share in SHARES)
    return Distribution(gaps.count, gaps.mean, p50, p90, p95, p99, gaps.longest)


def _by_tenant(meter: Meter) -> dict[str, Distribution]:
    waits: dict[str, list[float]] = {}
    for ended, wait in zip(meter.ended, meter.columns["ttft"], strict=True):
        if ended.arrival.tenant is not None:
            waits.setdefault(ended.arrival.tenant, []).append(wait)
    return {name: _of(waits[name]) for name in sorted(waits)}
