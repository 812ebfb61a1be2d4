"""Shortest job first, by predicted output length, with a guard against starvation.

The queue is ordered by the predicted length, asked for once when a request enters; equal and
unknown lengths keep the order of entry, unknown ones after all known. Nobody is displaced; when
blocks run out, the running request with the longest prediction gives way. A request that has waited
`patience_s` since it arrived or lost its place goes before all others, the longest waiting first,
and nobody overtakes it any more (vllm-ltr counts idle steps instead).
A prediction takes no time here: charge the predictor's own to the figures you quote.
Sources: Qiu et al., "SSJF" (arXiv 2404.08509); Fu et al., "Efficient LLM Scheduling by Learning to
Rank", NeurIPS 2024 (arXiv 2408.15792).
Hooks: order_waiting, select_waiting, pick_preempt_victim, request_arrived, request_admitted,
request_preempted, request_finished, scheduler_built. Needs a plugin that predicts.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from attrs import define, field
from attrs.validators import ge, optional

from framework import Request, Setup, StashKey, StepView, WaitingView, hookimpl

_LENGTH: StashKey[float] = StashKey()


@define(eq=False)
class SjfPredicted:
    """Short predicted outputs first.

    Args:
        patience_s: seconds of waiting after which a request goes before all others; None = never.
    """

    patience_s: float | None = field(default=None, validator=optional(ge(0.0)))
    _setup: Setup = field(init=False)
    _waits_since: OrderedDict[Request, float] = field(factory=OrderedDict, init=False)
    """{waiting request: moment}, the oldest moment first."""

    @property
    def may_starve(self) -> bool:
        """Whether a long request may wait for ever."""
        return self.patience_s is None

    @property
    def may_use_time(self) -> bool:
        """Whether seconds count."""
        return self.patience_s is not None

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Predictions come from here."""
        self._setup = setup

    @hookimpl
    def order_waiting(self, request: Request) -> float:
        """The predicted length."""
        predicted = self._setup.predict(request)
        request.stash[_LENGTH] = length = math.inf if predicted is None else float(predicted)
        return length

    @hookimpl
    def select_waiting(self, waiting: WaitingView, step: StepView) -> Request | None:
        """Who has waited longest, if that is too long."""
        if self.patience_s is None:
            return None
        for request, since in self._waits_since.items():
            if step.now - since < self.patience_s:
                return None
            if request in waiting:
                return request
        return None

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request:
        """The longest prediction, the latest of equals."""
        return max(reversed(candidates), key=lambda request: request.stash[_LENGTH])

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        """It waits."""
        self._waits_since[request] = request.arrival_time

    @hookimpl
    def request_admitted(self, request: Request) -> None:
        """It waits no more."""
        self._waits_since.pop(request, None)

    @hookimpl
    def request_preempted(self, request: Request, step: StepView) -> None:
        """It waits again; a paused one that lost its blocks too waits all the time."""
        self._waits_since.setdefault(request, step.now)

    @hookimpl
    def request_finished(self, request: Request) -> None:
        """It waits no more."""
        self._waits_since.pop(request, None)
