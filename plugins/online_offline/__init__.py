"""Online and offline requests on one machine: offline work fills what a step's time leaves.

Online requests are served as Sarathi does: decodes first, then prompts under way, then new ones in
order of arrival, up to `chunk` tokens a step. Offline ones (priority of at least `offline_from`)
get what is left of `step_s`, the duration that a step is predicted to take: first as many decodes
as fit beside what waiting online requests will ask for, then as much of a prompt as fits, unless an
online request waits. An online request that finds no slot or no blocks takes the places of offline
ones, the last admitted first, and these also give way first when a running request runs out of
blocks. Offline prompts leave `keep_free` of the pool, so that not every arrival undoes one at once.
Source: Sun et al., "HyGen: Efficient LLM Serving via Elastic Online-Offline Request Co-location",
NeurIPS 2025 (arXiv 2501.14808), without its order of offline requests by prefix.
Hooks: scheduler_built, order_waiting, order_running, cap_num_new_tokens, split_prefill, may_admit,
pick_displaced, pick_preempt_victim, step_planned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, count, takewhile

from attrs import define, field
from attrs.validators import ge, gt, instance_of, lt

from framework import (
    Batch,
    Hit,
    LatencyModel,
    PluginError,
    Refusal,
    Request,
    SchedulerOutput,
    Setup,
    Status,
    StepView,
    WaitingView,
    hookimpl,
)

_NUMBER = instance_of((int, float))


@define(eq=False)
class OnlineOffline:
    """Offline work within a budget of time.

    Args:
        step_s: seconds that a step with offline work may be predicted to take.
        chunk: tokens of online requests in one step beyond which no prompt gets any.
        offline_from: priority from which on a request is offline.
        keep_free: share of the pool that offline prompts leave free, from 0 to below 1.
    """

    may_starve = True
    may_use_time = True

    step_s: float = field(default=0.1, validator=[_NUMBER, gt(0)])
    chunk: int = field(default=512, validator=[instance_of(int), ge(1)])
    offline_from: int = field(default=1, validator=instance_of(int))
    keep_free: float = field(default=0.05, validator=[_NUMBER, ge(0), lt(1)])
    _latency: LatencyModel = field(init=False)
    _waiting: WaitingView = field(init=False)
    _ahead: count[int] = field(factory=lambda: count(-1, -1), init=False)
    _is_stuck: bool = field(default=False, init=False)
    """Nobody got a token in the last step: caution must not stop everybody."""

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Steps must be predictable."""
        if setup.latency is None:
            raise PluginError(
                "online_offline: the scheduler was given no latency model, so the time of a step "
                "cannot be predicted; pass latency="
            )
        self._latency, self._waiting = setup.latency, setup.waiting

    @hookimpl
    def order_waiting(self, request: Request) -> tuple[bool, int]:
        """Online before offline, then order of entry; a victim goes before others of its kind."""
        is_victim = request.status is Status.PREEMPTED
        return self._is_offline(request), next(self._ahead) if is_victim else 0

    @hookimpl
    def order_running(self, running: Sequence[Request], step: StepView) -> Sequence[Request] | None:
        """Online decodes, online prompts, offline decodes that fit, offline prompts."""
        offline = [request for request in running if self._is_offline(request)]
        if not offline and not step.running_prefills():
            return None
        online = [request for request in running if not self._is_offline(request)]
        online.sort(key=lambda request: request.is_prefill_chunk)
        waiting = list(takewhile(lambda request: not self._is_offline(request), self._waiting))
        decodes = [request for request in offline if not request.is_prefill_chunk]
        num_fitting = self._num_decodes(decodes, self._demand([*online, *waiting]), step)
        if self._is_stuck or not (online or waiting):
            num_fitting = max(1, num_fitting)
        sits_out = waiting and not self._is_stuck
        prompts = [] if sits_out else [request for request in offline if request.is_prefill_chunk]
        return [*online, *decodes[:num_fitting], *prompts]

    @hookimpl
    def cap_num_new_tokens(
        self, request: Request, num_new_tokens: int, step: StepView
    ) -> int | None:
        """An online prompt gets what is left of the chunk, an offline one what is left of time."""
        if self._is_offline(request):
            return self._num_fitting(request, num_new_tokens, step)
        if num_new_tokens == 1 + len(request.spec_token_ids):
            return None
        tokens = zip(step.planned_requests, step.planned.values(), strict=True)
        return max(0, self.chunk - sum(num for one, num in tokens if not self._is_offline(one)))

    @hookimpl
    def split_prefill(self, step: StepView) -> int:
        """Start with what is left."""
        return step.budget_left

    @hookimpl
    def may_admit(
        self, request: Request, num_new_tokens: int, hit: Hit, step: StepView
    ) -> bool | None:
        """An offline request comes only where time and pool allow, or where nobody runs."""
        if self._is_stuck or not step.num_running or not self._is_offline(request):
            return None
        if self._num_fitting(request, num_new_tokens, step) < num_new_tokens:
            return False
        kv = step.kv
        if kv is None:
            return None
        held = hit.num_tokens // step.config.block_size + len(kv.block_ids(request))
        needed = kv.num_blocks_needed(request.num_tokens) - held
        return needed <= 0 or kv.num_free_blocks - needed >= self.keep_free * kv.num_total_blocks

    @hookimpl
    def pick_displaced(
        self, request: Request, candidates: Sequence[Request], step: StepView
    ) -> Request | None:
        """The last offline one, where an online request lacks a slot, or blocks that they have."""
        offline = [other for other in candidates if self._is_offline(other)]
        reason = step.refused.get(request)
        if self._is_offline(request) or not offline:
            return None
        if reason is Refusal.BLOCKS and step.kv is not None:
            kv = step.kv
            freeable = sum(map(kv.num_freeable_blocks, offline))
            if kv.num_free_blocks + freeable < kv.num_blocks_needed(request.num_tokens):
                return None
        return offline[-1] if reason in (Refusal.SLOT, Refusal.BLOCKS) else None

    @hookimpl
    def pick_preempt_victim(self, candidates: Sequence[Request]) -> Request | None:
        """The last offline one, if there is any."""
        return next((other for other in reversed(candidates) if self._is_offline(other)), None)

    @hookimpl
    def step_planned(self, output: SchedulerOutput) -> None:
        """Note whether anybody got tokens."""
        self._is_stuck = not output.num_scheduled_tokens

    def _is_offline(self, request: Request) -> bool:
        return request.priority >= self.offline_from

    def _demand(self, online: Sequence[Request]) -> Batch:
        """What online requests, running ones first, will get in this step."""
        batch, left = Batch(), self.chunk
        for request in online:
            wanted = request.num_known_tokens - request.num_computed_tokens
            num_tokens = wanted if wanted == 1 else min(left, wanted)
            batch += Batch.of(num_tokens, request.num_computed_tokens)
            left = max(0, left - num_tokens)
            if not left and wanted > 1:
                break
        return batch

    def _num_decodes(self, decodes: Sequence[Request], batch: Batch, step: StepView) -> int:
        """How many of the decodes fit beside the batch, in time and tokens."""
        contexts = [0, *accumulate(request.num_computed_tokens + 1 for request in decodes)]

        def seconds(number: int) -> float:
            more = Batch(number, 0, 0.0, contexts[number], number, number)
            return self._latency.predict(batch + more)

        most = min(len(decodes), max(0, step.config.token_budget - batch.num_tokens))
        return max(0, bisect_right(range(most + 1), self.step_s, key=seconds) - 1)

    def _num_fitting(self, request: Request, num_tokens: int, step: StepView) -> int:
        """How many tokens of it still fit in the step's time; 1 at least where it is alone."""
        batch, start = step.batch, request.num_computed_tokens

        def seconds(number: int) -> float:
            return self._latency.predict(batch + Batch.of(number, start))

        fitting = bisect_right(range(num_tokens + 1), self.step_s, key=seconds) - 1
        return max(fitting, 0 if batch.num_tokens else 1)
