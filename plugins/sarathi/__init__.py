"""Sarathi-Serve: chunked prefill without stalls.

Every running decode gets its token first. What is left of the chunk, a bound on the tokens of one
step that is smaller than the budget, goes to the prompts under way and then to new ones, so that no
step takes much longer than a full chunk and nobody who decodes waits for a whole prompt. With
`last_chunk` the bound shrinks in equal stages, multiples of 32, as a prompt advances towards
`max_model_len`, since attention makes later chunks dearer. The chunk is chosen so that a full step
meets the promised gap between tokens. A prompt is admitted only where all of it finds blocks.
Source: Agrawal et al., "Taming Throughput-Latency Tradeoff", OSDI 2024 (arXiv 2403.02310).
Hooks: order_running, cap_num_new_tokens, split_prefill.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field
from attrs.validators import ge, instance_of, optional

from framework import Request, StepView, hookimpl

_GRAIN = 32


@define(eq=False)
class Sarathi:
    """Stall-free batches.

    Args:
        chunk: tokens of one step beyond which no prompt gets any.
        last_chunk: the bound for a prompt that has come to `max_model_len`, or None: it is `chunk`.
        stages: steps from the one to the other.
    """

    chunk: int = field(default=512, validator=[instance_of(int), ge(1)])
    last_chunk: int | None = field(default=None, validator=optional([instance_of(int), ge(1)]))
    stages: int = field(default=16, validator=[instance_of(int), ge(2)])

    @hookimpl
    def order_running(self, running: Sequence[Request], step: StepView) -> Sequence[Request] | None:
        """Decodes, then prompts under way, both in order of admission."""
        prefills = step.running_prefills()
        if not prefills:
            return None
        return [*(request for request in running if not request.is_prefill_chunk), *prefills]

    @hookimpl
    def cap_num_new_tokens(
        self, request: Request, num_new_tokens: int, step: StepView
    ) -> int | None:
        """A prompt gets what the others left of the chunk; a decode keeps its drafts."""
        if num_new_tokens == 1 + len(request.spec_token_ids):
            return None
        num_taken = step.config.token_budget - step.budget_left
        return max(0, self._bound(request, step) - num_taken)

    @hookimpl
    def split_prefill(self, step: StepView) -> int:
        """Where the budget is smaller than the chunk, start with what is left of it."""
        return step.budget_left

    def _bound(self, request: Request, step: StepView) -> int:
        if self.last_chunk is None:
            return self.chunk
        progress = request.num_computed_tokens * self.stages // step.config.max_model_len
        stage = min(self.stages - 1, progress)
        bound = self.chunk - (self.chunk - self.last_chunk) * stage // (self.stages - 1)
        return max(self.last_chunk, bound // _GRAIN * _GRAIN)
