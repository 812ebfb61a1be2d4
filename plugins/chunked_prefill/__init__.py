"""Chunked prefill: long prompts share the budget of a step with everybody else.

With `split` a prompt that exceeds what is left of the budget starts with what is left (Sarathi,
arXiv 2308.16369; vLLM V1). `cap` bounds one request's tokens in one step (vLLM's
long_prefill_token_threshold). `fair_share` raises the cap to an equal share of the budget among
all requests; `lone_exempt` lifts it for a request that has the scheduler to itself.
Hooks: split_prefill, cap_num_new_tokens.
"""

from __future__ import annotations

from attrs import define, field
from attrs.validators import ge, instance_of, optional

from framework import StepView, hookimpl


@define(eq=False)
class ChunkedPrefill:
    """Split and cap prefills.

    Args:
        cap: most tokens of one request in one step, or None.
        fair_share: raise the cap to max_num_batched_tokens // (running + waiting).
        lone_exempt: no cap while only one request is there.
        split: start a prompt with what is left of the budget; False = whole or not at all.
    """

    cap: int | None = field(default=None, validator=optional([instance_of(int), ge(1)]))
    fair_share: bool = field(default=False, validator=instance_of(bool))
    lone_exempt: bool = field(default=True, validator=instance_of(bool))
    split: bool = field(default=True, validator=instance_of(bool))

    @hookimpl
    def split_prefill(self, step: StepView) -> int | None:
        """Start with what is left."""
        return step.budget_left if self.split else None

    @hookimpl
    def cap_num_new_tokens(self, step: StepView) -> int | None:
        """The cap, raised or lifted where the options say so."""
        if self.cap is None:
            return None
        num_requests = step.num_running_at_start + step.num_waiting_at_start
        if self.lone_exempt and num_requests <= 1:
            return None
        if self.fair_share:
            return max(self.cap, step.config.max_num_batched_tokens // num_requests)
        return self.cap
