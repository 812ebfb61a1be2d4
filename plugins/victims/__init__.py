"""Victim choosers: who gives blocks back when they run out. Put one above any policy.

Each owns one decision and leaves the rest to the stack beneath. `victim_lifo` takes the last
admitted (vLLM V1), `victim_lowest_priority` the greatest (priority, arrival), and
`victim_least_computed` the one with the fewest computed tokens, which wastes less although it
preempts more often. `victim_cost_aware` takes the best bargain: blocks that become free (shared
ones do not) over tokens to be computed again, times the share still to come of the most that it may
give, so that who is near its end is spared.
Sources: vLLM's issue 54644 (an extension point for victims) and its pull requests 53723 (least
computed first) and 56897 (the cost score).
Hooks: pick_preempt_victim.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define

from framework import KvView, Request, StepView, hookimpl


@define(eq=False)
class VictimLifo:
    """The last admitted."""

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request:
        """The last one."""
        return candidates[-1]


@define(eq=False)
class VictimLowestPriority:
    """The least urgent."""

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request:
        """Greatest priority, then latest arrival, then latest admission."""
        latest_first = reversed(candidates)
        return max(latest_first, key=lambda request: (request.priority, request.arrival_time))


@define(eq=False)
class VictimLeastComputed:
    """The one that loses the fewest tokens."""

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request:
        """Fewest computed tokens, the latest of equals."""
        return min(reversed(candidates), key=lambda request: request.num_computed_tokens)


@define(eq=False)
class VictimCostAware:
    """The best bargain of blocks freed for tokens lost."""

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request], step: StepView) -> Request:
        """The greatest score, the latest of equals."""
        return max(reversed(candidates), key=lambda request: _score(request, step.kv))


def _score(request: Request, kv: KvView | None) -> float:
    num_freed = 1 if kv is None else kv.num_freeable_blocks(request)
    most = request.length_limit - request.num_prompt_tokens
    still_to_come = 1.0 - request.num_output_tokens / most
    return num_freed / max(1, request.num_computed_tokens) * still_to_come
