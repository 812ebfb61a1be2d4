"""Victim choosers: who gives blocks back when they run out. Put one above any policy.

Each owns one decision and leaves the rest to the stack beneath. `victim_lifo` takes the last
admitted (vLLM V1), `victim_lowest_priority` the greatest (priority, arrival), and
`victim_least_computed` the one with the fewest computed tokens, which wastes less although it
preempts more often. `victim_cost_aware` takes the best bargain: blocks that become free over the
time to compute again what is lost with them, times the part that is still to be generated, so that
big old requests near their end are spared.
Sources: vLLM's discussions 54644 (an extension point for victims), 53723 (least computed) and
56897 (a cost score).
Hooks: pick_preempt_victim; cost aware also scheduler_built.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from framework import Batch, Request, Setup, StepView, hookimpl


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
    """The best bargain of blocks freed for time lost."""

    _setup: Setup = field(init=False)

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Costs are those of its latency model."""
        self._setup = setup

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request], step: StepView) -> Request:
        """The greatest score, the latest of equals."""
        return max(reversed(candidates), key=lambda request: self._score(request, step))

    def _score(self, request: Request, step: StepView) -> float:
        kv = self._setup.kv
        num_freed = 1 if kv is None else kv.num_freeable_blocks(request)
        num_shared = 0 if kv is None else kv.num_shared_blocks(request)
        lost = request.num_computed_tokens - num_shared * self._setup.config.block_size
        return num_freed / self._cost(max(1, lost)) * (1.0 - _progress(request, step))

    def _cost(self, num_tokens: int) -> float:
        """Seconds to compute so many again; tokens where nobody predicts."""
        latency = self._setup.latency
        if latency is None:
            return float(num_tokens)
        pairs = num_tokens * num_tokens / 2
        return latency.predict(Batch(num_tokens, num_tokens, pairs, num_requests=1))


def _progress(request: Request, step: StepView) -> float:
    """Share of its output that it has given, of the predicted length or else of the most."""
    predicted = step.predict(request)
    if predicted is None:
        predicted = float(request.length_limit - request.num_prompt_tokens)
    return min(1.0, request.num_output_tokens / max(1.0, predicted))
