"""Past-Future admission: admit while the memory peak to come still fits.

What a request will yet give is drawn from the lengths of requests that ended (the past), among
those longer than what it gave already; one that outlived all of them is given as much again. With
the running requests sorted by what is left of them, most first, s their sizes and l what is left,
memory peaks when one of them ends (the future): max over i of s_1 + ... + s_i + i * l_i. A request
is admitted while that peak, with it, stays within the pool. It keeps its place in the distribution
for life, so that asking again in the next step is no second throw of the dice. Until a request has
ended, all are taken to run to their limit. Rounding to blocks, shared prefixes and paused requests
enter as what the pool holds now beyond or below what the running ones computed; what the new one
would share is not counted for it.
Source: Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees", ASPLOS 2025
(arXiv 2507.10150), in LightLLM.
Hooks: scheduler_built, may_admit, request_admitted, request_preempted, request_finished.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from random import Random

from attrs import define, field
from attrs.validators import ge, instance_of, lt

from framework import KvView, Request, Setup, StashKey, Status, StepView, hookimpl

_PLACE: StashKey[float] = StashKey()


@define(eq=False)
class PastFuture:
    """Admit by the predicted memory peak.

    Args:
        window: ended requests whose output lengths are remembered.
        reserve: share of the pool that is planned to stay free, from 0 to below 1.
    """

    window: int = field(default=1000, validator=[instance_of(int), ge(1)])
    reserve: float = field(default=0.05, validator=[instance_of((int, float)), ge(0), lt(1)])
    _lengths: list[int] = field(factory=list, init=False)
    _newest: deque[int] = field(factory=deque, init=False)
    _random: Random = field(factory=Random, init=False)
    _kv: KvView | None = field(default=None, init=False)
    _running: dict[Request, None] = field(factory=dict, init=False)
    _future: tuple[StepView, list[tuple[int, int]]] | None = field(default=None, init=False)
    """A step, and (-what is left, size) of each running request in it, sorted."""

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Its own random stream, and the pool."""
        self._random = setup.random(self)
        self._kv = setup.kv

    @hookimpl
    def may_admit(self, request: Request, step: StepView) -> bool | None:
        """No objection while the peak with it stays within the pool, or if nobody runs."""
        kv = self._kv
        if kv is None or not step.num_running:
            return None
        size = step.config.block_size
        if self._future is None or self._future[0] is not step:
            self._running = {one: None for one in self._running if one.status is Status.RUNNING}
            self._future = (step, sorted(map(self._outlook, self._running)))
        others = self._future[1]
        own = self._outlook(request)
        place = bisect_left(others, own)
        peak = peak_tokens([*others[:place], own, *others[place:]])
        held = (kv.num_total_blocks - kv.num_free_blocks) * size
        planned = step.planned
        computed = sum(
            one.num_computed_tokens + planned.get(one.request_id, 0) for one in self._running
        )
        return peak + held - computed <= kv.num_total_blocks * size * (1 - self.reserve)

    @hookimpl
    def request_admitted(self, request: Request) -> None:
        """It is one of the running ones."""
        self._running[request] = None
        self._future = None

    @hookimpl
    def request_preempted(self, request: Request) -> None:
        """It is none of them; if it kept its blocks, the pool tells."""
        self._running.pop(request, None)
        self._future = None

    @hookimpl
    def request_finished(self, request: Request) -> None:
        """Remember how long it was, unless it was cut off."""
        self._running.pop(request, None)
        if request.status not in (Status.FINISHED_STOPPED, Status.FINISHED_LENGTH_CAPPED):
            return
        insort(self._lengths, request.num_output_tokens)
        self._newest.append(request.num_output_tokens)
        if len(self._newest) > self.window:
            del self._lengths[bisect_left(self._lengths, self._newest.popleft())]

    def _outlook(self, request: Request) -> tuple[int, int]:
        """(-what is left of it, its size), in tokens."""
        return -self._left(request), request.num_tokens

    def _left(self, request: Request) -> int:
        given, most = request.num_output_tokens, request.length_limit - request.num_tokens
        lengths = self._lengths
        if not lengths:
            return most
        first_longer = bisect_right(lengths, given)
        if first_longer == len(lengths):
            return min(given, most)
        place = request.stash.get(_PLACE, None)
        if place is None:
            place = request.stash[_PLACE] = self._random.random()
        longer = len(lengths) - first_longer
        return min(lengths[first_longer + int(place * longer)] - given, most)


def peak_tokens(outlooks: list[tuple[int, int]]) -> int:
    """Most tokens held at once, when no request comes and each ends as foreseen."""
    peak = total = 0
    for number, (minus_left, size) in enumerate(outlooks, 1):
        total += size
        peak = max(peak, total - number * minus_left)
    return peak
