"""The records that go to a runner and come back. Plain data, columns where a step is wide.

A runner keeps its own block tables and token lists from `SchedulerOutput` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework.request import EncoderInput
    from framework.sampling import SamplingParams

BlockIds: TypeAlias = Any
"""Block ids as the owner of blocks hands them out: a list of ints, or a tuple of lists, one a
cache group. The core passes them on unread."""


@define(eq=False)
class NewRequestData:
    """A request that the runner sees for the first time: everything about it.

    `num_computed_tokens` counts what is already in the cache (prefix or external hit), before
    this step's tokens. `block_ids` is the whole block table.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling_params: SamplingParams
    block_ids: BlockIds
    num_computed_tokens: int
    adapter: str | None = None
    encoder_inputs: Sequence[EncoderInput] = ()
    needs_pooling: bool = False
    eos_token_ids: Sequence[int] = ()


@define(eq=False)
class CachedRequestData:
    """Requests the runner knows: one list a field, index i is request `req_ids[i]`.

    Attributes:
        req_ids: continuing requests in running order, then resumed ones.
        num_computed_tokens: before this step's tokens.
        num_output_tokens: sampled so far, placeholders of earlier steps included.
        new_block_ids: only requests with news; appended to the table, or the whole table of a
            resumed one.
        resumed_req_ids: they come back after a preemption or pause: replace, do not append.
        all_token_ids: of the resumed ones, prompt and output.
    """

    req_ids: list[str] = field(factory=list)
    num_computed_tokens: list[int] = field(factory=list)
    num_output_tokens: list[int] = field(factory=list)
    new_block_ids: dict[str, BlockIds] = field(factory=dict)
    resumed_req_ids: set[str] = field(factory=set)
    all_token_ids: dict[str, list[int]] = field(factory=dict)


@define(eq=False)
class ConnectorMetadata:
    """What a runner copies between its paged cache and external memory in one step.

    In this order: stores, (zeroing,) loads, drops; then the step computes.

    Attributes:
        stores: (name, block id) to copy out of the cache and keep under that name.
        loads: (name, block id) to copy into the cache.
        drop: names to forget.
        receiving: ids of waiting requests whose loads these are; report each in
            `RunnerOutput.finished_recving` when its loads are done.
        sending: ids of ended requests; report each in `RunnerOutput.finished_sending` when its
            stores are done.
    """

    stores: list[tuple[bytes, int]] = field(factory=list)
    loads: list[tuple[bytes, int]] = field(factory=list)
    drop: list[bytes] = field(factory=list)
    receiving: list[str] = field(factory=list)
    sending: list[str] = field(factory=list)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        return not (self.stores or self.loads or self.drop or self.receiving or self.sending)

    def copy(self) -> ConnectorMetadata:
        """The same with lists of its own."""
        return ConnectorMetadata(
            list(self.stores),
            list(self.loads),
            list(self.drop),
            list(self.receiving),
            list(self.sending),
        )

    def put_first(self, earlier: ConnectorMetadata) -> None:
        """What was to be done before comes first."""
        self.stores[:0] = earlier.stores
        self.loads[:0] = earlier.loads
        self.drop[:0] = earlier.drop
        self.receiving[:0] = earlier.receiving
        self.sending[:0] = earlier.sending


@define(eq=False)
class SchedulerOutput:
    """One step, complete. A runner stores, zeroes, loads, then computes.

    Attributes:
        step: number of the step, from 0.
        num_scheduled_tokens: {request id: tokens}, in scheduling order, which is the batch order.
        scheduled_new_reqs, scheduled_cached_reqs: who they are, see there.
        total_num_scheduled_tokens: their sum.
        scheduled_spec_decode_tokens: {id: drafts to verify}, the last tokens of the request's
            scheduled ones; -1 = filled in by the runner (async) or padding.
        num_drafts: {id: drafts that the runner should propose for the next step}.
        scheduled_encoder_inputs: {id: indices of the encoder inputs to run in this step}.
        num_common_prefix_blocks: leading blocks that every running request shares.
        preempted_req_ids: lost their place since the last step, in order; drop their rows.
        finished_req_ids: ended since the last step; forget them.
        free_encoder_input_ids: content ids whose encoder output may be dropped.
        drop_kept: first of all forget every encoder output and every block in external memory: the
            plugins that knew of them have been swapped.
        structured_output_request_ids: {id: row of its grammar bitmask}; its drafts obey the rows
            after that one.
        grammar_bitmask: allowed tokens a row, [N, ceil(V / 32)] int32, bit t % 32 of word
            t // 32 for token t; or None (plugins).
        new_block_ids_to_zero: blocks that must be zeroed before use.
        connector_metadata: what the owner of external KV tells its worker half, or None.
        extra: fields of other plugins' `extend_output`.
    """

    step: int
    num_scheduled_tokens: dict[str, int]
    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(factory=dict)
    num_drafts: dict[str, int] = field(factory=dict)
    scheduled_encoder_inputs: dict[str, Sequence[int]] = field(factory=dict)
    num_common_prefix_blocks: int = 0
    preempted_req_ids: Sequence[str] = ()
    finished_req_ids: Sequence[str] = ()
    free_encoder_input_ids: Sequence[str] = ()
    drop_kept: bool = False
    structured_output_request_ids: dict[str, int] = field(factory=dict)
    grammar_bitmask: Any = None
    new_block_ids_to_zero: Sequence[int] = ()
    connector_metadata: Any = None
    extra: dict[str, Any] = field(factory=dict)


@frozen
class TokenLogprobs:
    """Log-probabilities of one sampled token: its own, its rank (1 = likeliest), the top ones."""

    logprob: float
    rank: int
    top: Mapping[int, float]


@define(eq=False)
class RunnerOutput:
    """What a runner found in one step.

    Attributes:
        sampled_token_ids: one list a request, in the order of `num_scheduled_tokens`: empty for
            a chunk that does not reach the request's last token, else accepted drafts + 1 tokens.
        draft_token_ids: {id: proposed drafts for the next step}, if the runner drafts.
        logprobs: {id: one entry a sampled token}, where asked for.
        pooler_outputs: {id: pooled vector} of finished pooling requests.
        finished_recving, finished_sending: ids whose external KV has been loaded / sent.
        probes: {name: values in batch order} that plugins asked for.
        duration_s: seconds the step took on the runner's clock, or None.
    """

    sampled_token_ids: Sequence[Sequence[int]]
    draft_token_ids: Mapping[str, list[int]] | None = None
    logprobs: Mapping[str, list[TokenLogprobs]] | None = None
    pooler_outputs: Mapping[str, Any] | None = None
    finished_recving: Sequence[str] = ()
    finished_sending: Sequence[str] = ()
    probes: Mapping[str, Any] = field(factory=dict)
    duration_s: float | None = None


@define(eq=False)
class StepResult:
    """What one step gave to whom; columns, index i is request `req_ids[i]`.

    Attributes:
        step: the step these results belong to.
        req_ids: requests that gave output.
        new_token_ids: tokens kept, one list a request.
        finish_reasons: {id: "stop" | "length" | "abort" | "rejected" | "error"}, sparse; also of
            requests that ended without output since the last result.
        stop_reasons: {id: the stop token}, sparse.
        errors: {id: sentence} of requests refused or ended by an error, sparse.
        logprobs, pooler_outputs: passed on from the runner.
    """

    step: int
    req_ids: list[str] = field(factory=list)
    new_token_ids: list[Sequence[int]] = field(factory=list)
    finish_reasons: dict[str, str] = field(factory=dict)
    stop_reasons: dict[str, int | str] = field(factory=dict)
    errors: dict[str, str] = field(factory=dict)
    logprobs: Mapping[str, list[TokenLogprobs]] = field(factory=dict)
    pooler_outputs: Mapping[str, Any] = field(factory=dict)
