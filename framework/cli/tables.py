"""How policies differ: the tables and the headline of `headway compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework.cli.report import rate, share, show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.engine.playback import Outcome
    from framework.metrics import Distribution


def show_latencies(outcomes: Sequence[Outcome]) -> None:
    """One row a policy: latencies, throughput, preemptions, hits, drafts."""
    names = ("done", "TTFT s", "TPOT ms", "E2E s", "tok/s", "preempted", "hits", "drafts")
    rows = []
    for outcome in outcomes:
        summary = outcome.summary
        rows.append(
            (
                outcome.policy,
                f"{len(outcome.completions)}/{outcome.num_prompts}",
                _pair(summary.ttft_s),
                _pair(summary.tpot_s, 1000, 0),
                _pair(summary.e2e_s),
                rate(summary.output_tokens_per_s),
                str(outcome.num_preemptions),
                share(summary.num_cached_tokens, summary.num_prompt_tokens),
                share(outcome.num_drafts_accepted, outcome.num_drafts),
            )
        )
    title = "Latencies from arrival (p50 / p90), prompt tokens found in the cache, drafts accepted"
    show_table(title, ("policy", *names), rows, numbers=True)


def show_priorities(outcomes: Sequence[Outcome]) -> None:
    """One row a policy, one column a priority: who waited for whom."""
    waits = [outcome.ttft_by_priority() for outcome in outcomes]
    priorities = sorted({priority for each in waits for priority in each})
    columns = ["policy"]
    for priority in priorities:
        counts = [each[priority].count for each in waits if priority in each]
        columns.append(f"priority {priority} (n={max(counts)})")
    rows = [
        [
            outcome.policy,
            *(_pair(each[priority]) if priority in each else "-" for priority in priorities),
        ]
        for outcome, each in zip(outcomes, waits, strict=True)
    ]
    title = "TTFT in seconds by priority (lower is more urgent), p50 / p90"
    show_table(title, columns, rows, numbers=True)


def _pair(distribution: Distribution, scale: int = 1, digits: int = 2) -> str:
    if distribution.p50 is None or distribution.p90 is None:
        return "-"
    return f"{distribution.p50 * scale:.{digits}f} / {distribution.p90 * scale:.{digits}f}"


def sum_up(outcomes: Sequence[Outcome], same: bool | None, num_stopped: int | None) -> str:
    """The headline.

    Args:
        outcomes: what was run, the last one perhaps not to its end.
        same: whether the outputs are identical; None = not to be told.
        num_stopped: how many policies were to be run, if it was stopped early.
    """
    complete = [outcome for outcome in outcomes if outcome.is_complete]
    parts = []
    if num_stopped is not None:
        parts.append(f"stopped early, {len(complete)} of {num_stopped} policies complete")
    if complete:
        best = min(complete, key=lambda outcome: outcome.summary.ttft_s.p50 or 0.0)
        most = max(complete, key=lambda outcome: outcome.summary.output_tokens_per_s or 0.0)
        wait, tokens = best.summary.ttft_s.p50 or 0.0, rate(most.summary.output_tokens_per_s)
        parts.append(f"lowest median TTFT: {best.policy} ({wait:.2f} s)")
        parts.append(f"highest throughput: {most.policy} ({tokens} tok/s)")
    if same is not None:
        parts.append(f"outputs identical under all policies: {'yes' if same else 'no'}")
    return "; ".join(parts) or "nothing was run"
