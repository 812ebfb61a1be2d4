"""Speculative decoding: how many drafts, where they come from, and padding of new decodes.

With method "ngram" drafts are the tokens that followed the last earlier occurrence of the
request's newest n tokens (prompt lookup decoding, Saxena 2023); with "runner" the runner drafts
with a model of its own. Verifying is always the runner's. `pad` schedules a request that is
admitted with one token to compute as if it had drafts, so that a batch of decodes keeps one shape
(vLLM V1). Hooks: scheduler_built, compute_num_new_tokens, compute_num_drafts, propose_drafts.
"""

from __future__ import annotations

from attrs import define, field
from attrs.validators import ge, in_, instance_of, optional

from framework import Hit, KvView, PluginError, Request, Setup, StepView, hookimpl
from framework.ngram import propose_ngram


@define(eq=False)
class SpecDecode:
    """Drafts for the next step.

    Args:
        method: "ngram" (from the request's own tokens) or "runner".
        num_drafts: drafts of one request in one step; None = config.num_spec_tokens.
        max_ngram, min_ngram: longest and shortest match, in tokens.
        pad: pad new decodes with -1 drafts.
    """

    method: str = field(default="ngram", validator=in_(("ngram", "runner")))
    num_drafts: int | None = field(default=None, validator=optional([instance_of(int), ge(0)]))
    max_ngram: int = field(default=3, validator=[instance_of(int), ge(1)])
    min_ngram: int = field(default=2, validator=[instance_of(int), ge(1)])
    pad: bool = field(default=False, validator=instance_of(bool))
    _most: int = field(default=0, init=False)
    _max_model_len: int = field(default=0, init=False)
    _token_budget: int = field(default=0, init=False)
    _kv: KvView | None = field(default=None, init=False)

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Learn the limits; without drafts in the config the plugin could do nothing."""
        if setup.config.num_spec_tokens == 0:
            raise PluginError(
                "spec_decode: config.num_spec_tokens is 0, so no step could hold a draft; "
                "set it to at least 1 or leave the plugin out"
            )
        self._most = setup.config.num_spec_tokens
        self._max_model_len = setup.config.max_model_len
        self._token_budget = setup.config.token_budget
        self._kv = setup.kv

    @hookimpl
    def compute_num_new_tokens(
        self, request: Request, num_new_tokens: int, hit: Hit | None, step: StepView
    ) -> int | None:
        """Pad an admission that has one token to compute, beside decodes or after a hit."""
        if hit is None or not self.pad or num_new_tokens != 1:
            return None
        computed = request.num_computed_tokens
        if computed + 1 + self._most + 1 > self._max_model_len:
            return None
        if not self._can_ever_hold(computed + 1 + self._most):
            return None
        if step.has_running_prefill() or not (computed or step.num_running_planned):
            return None
        return 1 + self._most

    def _can_ever_hold(self, num_tokens: int) -> bool:
        """Padding must not keep out what fits without it."""
        kv = self._kv
        fits = kv is None or kv.num_blocks_needed(num_tokens) <= kv.num_total_blocks
        return fits and 1 + self._most <= self._token_budget

    @hookimpl
    def compute_num_drafts(self) -> int | None:
        """The same for everyone."""
        return self.num_drafts

    @hookimpl
    def propose_drafts(self, request: Request, num_drafts: int) -> list[int] | None:
        """What followed the newest tokens when they last occurred."""
        if self.method != "ngram":
            return None
        tokens = request.all_token_ids
        return propose_ngram(tokens, num_drafts, self.max_ngram, self.min_ngram)
