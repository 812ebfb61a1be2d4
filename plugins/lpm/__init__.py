"""Longest prefix match: who finds most of its prompt in the cache goes first.

Before the first admission of a step the waiting requests are sorted by the tokens that the prefix
cache holds of them. A queue of more than `longest_queue` is served in its own order, since looking
everyone up would cost more than it saves. Of requests with a common beginning that is not cached
yet, one goes ahead and the others wait for it. Who was refused for want of room ends the step's
admissions; who was vetoed by another plugin is passed over. Requests with rare prefixes may starve.
Source: Zheng et al., "SGLang", NeurIPS 2024 (arXiv 2312.07104), and its scheduler.
Hooks: select_waiting, step_planned.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field
from attrs.validators import ge, instance_of

from framework import HOLD, Answer, Refusal, Request, StepView, WaitingView, hookimpl
from framework.prefixes import longest_prefix_first

_WHOLE = [instance_of(int), ge(0)]


@define(eq=False)
class Lpm:
    """Order by cached prefix.

    Args:
        longest_queue: waiting requests beyond which the queue's own order holds.
        shared_tokens: uncached tokens that make two beginnings count as one; 0 = never.
    """

    may_starve = True

    longest_queue: int = field(default=128, validator=_WHOLE)
    shared_tokens: int = field(default=32, validator=_WHOLE)
    _seen: StepView | None = field(default=None, init=False)
    _order: Iterator[Request] = field(factory=lambda: iter(()), init=False)
    _tried: Request | None = field(default=None, init=False)

    @hookimpl
    def select_waiting(self, waiting: WaitingView, step: StepView) -> Request | Answer | None:
        """The next in the order, unless the last was refused for want of room."""
        if not step.slots_left or not step.budget_left:
            return None  # nobody can come in, so nobody is looked up
        if step is not self._seen:
            self._seen, self._tried = step, None
            order = longest_prefix_first(
                waiting,
                step.kv,
                longest_queue=self.longest_queue,
                shared_tokens=self.shared_tokens,
            )
            self._order = iter(order)
        tried = self._tried
        if tried is not None and step.refused.get(tried) not in (None, Refusal.GATE):
            return tried
        self._tried = next((request for request in self._order if request in waiting), None)
        return HOLD if self._tried is None else self._tried

    @hookimpl
    def step_planned(self) -> None:
        """The order was that of this step."""
        self._seen, self._tried, self._order = None, None, iter(())
