"""Request: the tokens it knows, how many of them are computed, and where it stands.

There is no prefill and no decode state. `num_known_tokens - num_computed_tokens` is what a step
may still hand out; everything else is derived from that.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from attrs import Factory, define, field, frozen

from framework.sampling import SamplingParams
from framework.stash import Stash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UNLIMITED = 1 << 62
"""`num_slots` of a request when nobody in the stack owns blocks."""


class Status(Enum):
    """Where a request stands. The names are vLLM V1's, with PAUSED and the two refusals added."""

    WAITING = "waiting"
    WAITING_FOR_REMOTE_KVS = "waiting for remote KV"
    RUNNING = "running"
    PREEMPTED = "preempted"
    PAUSED = "paused"
    FINISHED_STOPPED = "stopped"
    FINISHED_LENGTH_CAPPED = "length"
    FINISHED_ABORTED = "aborted"
    FINISHED_REJECTED = "rejected"
    FINISHED_ERROR = "error"

    @property
    def is_finished(self) -> bool:
        """True for every status that a request never leaves."""
        return self in _FINISHED


_FINISHED = frozenset(status for status in Status if status.name.startswith("FINISHED"))


class PreemptMode(Enum):
    """What becomes of the KV of a request that loses its place."""

    RECOMPUTE = "recompute"
    """Blocks freed, nothing counts as computed any more."""
    KEEP = "keep"
    """Blocks and progress kept without a slot; only for a displaced request."""
    SWAP = "swap"
    """Stored by the owner of external KV, then as RECOMPUTE; the look-up at return finds it."""


@frozen(kw_only=True)
class EncoderInput:
    """One image, clip or sound in the prompt.

    Attributes:
        content_id: identity of the content; equal ids mean equal content.
        position: index of its first placeholder token in the prompt.
        num_tokens: placeholder tokens it fills.
    """

    content_id: str
    position: int
    num_tokens: int


@frozen(kw_only=True)
class Slo:
    """What was promised for a request, in seconds; None = nothing.

    Attributes:
        ttft_s: time to first token, from arrival.
        tpot_s: time per output token after the first, on average.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None


@define(eq=False, repr=False)
class Request:
    """One request and its counters. Policies read it; only the core writes it.

    Attributes:
        request_id: unique among the unfinished requests of one scheduler.
        prompt_token_ids: never changed.
        sampling_params: how to sample and when to stop.
        arrival_time: seconds on the scheduler's clock; a sort key, not an order of service.
        priority: lower is more urgent.
        tenant: whose request it is (fairness policies), or None.
        adapter: content id of a LoRA adapter, or None; separates KV.
        cache_salt: separates KV of equal prompts, or None.
        encoder_inputs: images and the like, in prompt order.
        eos_token_ids: end-of-sequence tokens of the model.
        needs_pooling: True = no token is sampled; the request ends with its pooled vector.
        kv_transfer_params: options of an owner of external KV, or None (vLLM's name).
        deadline: seconds on the scheduler's clock, or None (deadline policies).
        slo: what was promised, or None (deadline policies).
        stash: typed storage for plugin data.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling_params: SamplingParams = Factory(SamplingParams)
    arrival_time: float = field(default=0.0, kw_only=True)
    priority: int = field(default=0, kw_only=True)
    tenant: str | None = field(default=None, kw_only=True)
    adapter: str | None = field(default=None, kw_only=True)
    cache_salt: str | None = field(default=None, kw_only=True)
    encoder_inputs: Sequence[EncoderInput] = field(default=(), kw_only=True)
    eos_token_ids: Sequence[int] = field(default=(), kw_only=True)
    needs_pooling: bool = field(default=False, kw_only=True)
    kv_transfer_params: Mapping[str, Any] | None = field(default=None, kw_only=True)
    deadline: float | None = field(default=None, kw_only=True)
    slo: Slo | None = field(default=None, kw_only=True)
    stash: Stash = field(factory=Stash, init=False)

    # The books. Counters are stored, not derived: the step loop reads them for every request.
    status: Status = field(default=Status.WAITING, init=False)
    all_token_ids: list[int] = field(init=False)
    spec_token_ids: list[int] = field(factory=list, init=False)
    num_prompt_tokens: int = field(init=False)
    num_computed_tokens: int = field(default=0, init=False)
    num_known_tokens: int = field(init=False)
    """Tokens in `all_token_ids`, plus placeholders, plus drafts."""
    num_output_placeholders: int = field(default=0, init=False)
    """Tokens that steps in flight will sample (async scheduling)."""
    is_prefill_chunk: bool = field(default=False, init=False)
    """The last step that gave it tokens did not reach its last known one, so it did not sample."""
    num_slots: int = field(default=UNLIMITED, init=False)
    """Written by the owner of blocks: up to this computed count `allocate` need not be asked."""
    num_preemptions: int = field(default=0, init=False)
    num_once_computed: int = field(default=0, init=False)
    """Most tokens that were computed before a preemption: what comes again up to it is not new."""
    num_awaited_outputs: int = field(default=0, init=False)
    """Steps in flight that this request lost its place after; it is not ready until they are in."""
    length_limit: int = field(default=UNLIMITED, init=False)
    """Tokens (prompt + output) at which it ends by length; set when it is added."""
    stop_token_set: frozenset[int] = field(init=False)
    stop_reason: int | str | None = field(default=None, init=False)
    error: str | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.all_token_ids = list(self.prompt_token_ids)
        self.num_prompt_tokens = self.num_known_tokens = len(self.all_token_ids)
        stops = set(self.sampling_params.stop_token_ids)
        if not self.sampling_params.ignore_eos:
            stops.update(self.eos_token_ids)
        self.stop_token_set = frozenset(stops)

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, {self.status.name}, "
            f"computed {self.num_computed_tokens} of {self.num_known_tokens})"
        )

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens, without placeholders and drafts."""
        return len(self.all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens sampled so far."""
        return len(self.all_token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        """The tokens sampled so far (a copy)."""
        return self.all_token_ids[self.num_prompt_tokens :]

    @property
    def is_finished(self) -> bool:
        """True once it has ended, for whatever reason."""
        return self.status.is_finished

    def set_drafts(self, drafts: list[int]) -> None:
        """Replace the pending drafts; they count as known tokens."""
        self.num_known_tokens += len(drafts) - len(self.spec_token_ids)
        self.spec_token_ids = drafts

    def set_placeholders(self, count: int) -> None:
        """Replace the number of tokens in flight; they count as known tokens."""
        self.num_known_tokens += count - self.num_output_placeholders
        self.num_output_placeholders = count

    def as_dict(self) -> dict[str, Any]:
        """Plain data for logs and `--json` files."""
        return {
            "request_id": self.request_id,
            "status": self.status.value,
            "num_prompt_tokens": self.num_prompt_tokens,
            "output_token_ids": self.output_token_ids,
            "num_preemptions": self.num_preemptions,
            "stop_reason": self.stop_reason,
            "error": self.error,
        }
