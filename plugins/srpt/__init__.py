"""Shortest remaining processing time, with limited preemption (TRAIL).

A request's remaining length is its predicted output length, asked for anew each time, less what it
has given. The queue is ordered by it, and a waiting request takes the place of the running one with
the most remaining, if that is strictly more than its own. A running request may be displaced only
while it has given fewer than `limit` times its first prediction: 1 is plain SRPT, 0 is shortest
job first. `mode` says what becomes of a victim's KV: with "keep" it is paused with its blocks, so
nobody is displaced where blocks are what is missing. Unknown lengths come after all known ones.
Source: Shahout et al., "Don't Stop Me Now", ICLR 2025 (arXiv 2410.01035).
Hooks: order_waiting, pick_displaced, preempt_mode, pick_preempt_victim, request_arrived,
scheduler_built. Needs a plugin that predicts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import define, field
from attrs.validators import ge, in_, instance_of

from framework import PreemptMode, Refusal, Request, Setup, StashKey, StepView, hookimpl

_FIRST: StashKey[float] = StashKey()


@define(eq=False)
class Srpt:
    """Least remaining first.

    Args:
        limit: share of its first prediction after which a request is not displaced any more.
        mode: "keep", "recompute" or "swap" (needs an owner of external KV).
    """

    may_starve = True

    limit: float = field(default=0.8, validator=[instance_of((int, float)), ge(0)])
    mode: str = field(default="keep", validator=in_([mode.value for mode in PreemptMode]))
    _setup: Setup = field(init=False)

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Predictions come from here."""
        self._setup = setup

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        """Note the first prediction."""
        predicted = self._setup.predict(request)
        request.stash[_FIRST] = math.inf if predicted is None else predicted

    @hookimpl
    def order_waiting(self, request: Request) -> float:
        """What remains when it enters."""
        return self._remaining(request)

    @hookimpl
    def pick_displaced(
        self, request: Request, candidates: Sequence[Request], step: StepView
    ) -> Request | None:
        """The one with the most remaining, for a slot, or for blocks if they would suffice."""
        refusal = step.refused[request]
        if refusal is Refusal.BUDGET or (refusal is Refusal.BLOCKS and self.mode == "keep"):
            return None
        mine = self._remaining(request)
        longer = [other for other in candidates if self._may_lose(other, mine)]
        if not longer or (refusal is Refusal.BLOCKS and not step.would_fit(request, longer)):
            return None
        return max(reversed(longer), key=self._remaining)

    @hookimpl
    def preempt_mode(self, displaced: bool) -> PreemptMode:
        """As told, but where blocks ran out they must come back."""
        mode = PreemptMode(self.mode)
        return PreemptMode.RECOMPUTE if mode is PreemptMode.KEEP and not displaced else mode

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request:
        """The one with the most remaining, the latest of equals."""
        return max(reversed(candidates), key=self._remaining)

    def _remaining(self, request: Request) -> float:
        predicted = self._setup.predict(request)
        return math.inf if predicted is None else max(0.0, predicted - request.num_output_tokens)

    def _may_lose(self, request: Request, remaining: float) -> bool:
        is_young = request.num_output_tokens < self.limit * request.stash[_FIRST]
        return is_young and self._remaining(request) > remaining
