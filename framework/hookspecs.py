"""The hooks: every decision of the step loop, by kind. The docstrings are the documentation.

Each says: what is decided · when in the step · the default · what the returns mean · parameters ·
what it may change · its cost class (per request, per step, rare). An implementation names only
the parameters it uses; None is "no opinion"; defaults for parameters are not allowed.

It is long because it is the manual: a policy author reads it through in one place, and there is no
code in it but signatures.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from framework.config import SchedulerConfig
    from framework.output import BlockIds, SchedulerOutput
    from framework.protocols import Answer, ExternalHit, Hit, KvView, WaitingView
    from framework.reports import Setup, StepReport
    from framework.request import PreemptMode, Request
    from framework.view import StepView

PROJECT: Final = "headway"
API_VERSION: Final = (1, 0)
"""(major, minor). A plugin may set `headway_api = (1, 0)`: same major, at most this minor."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


# ---------------------------------------------------------------------------------------------
# decide: the first answer that is not None
# ---------------------------------------------------------------------------------------------


class Decide:
    """Choices. The plugin last in the stack is asked first; the first that is not None counts."""

    @hookspec(firstresult=True)
    def select_waiting(self, waiting: WaitingView, step: StepView) -> Request | Answer | None:
        """Choose the waiting request to try next.

        In the step: before every admission, after each admission or refusal again.
        Default: the head of the queue.
        Returns: a request of `waiting` · HOLD, to admit nobody more this step · None, no opinion.
        Naming a request that was refused in this step stops the admissions; naming another skips.

        Parameters:
            waiting: the queue in order, without those set aside in this step.
            step: the plan so far; `step.refused` tells who was refused and why.

        May change nothing. Cost: per admission.
        """

    @hookspec(firstresult=True)
    def order_running(self, running: Sequence[Request], step: StepView) -> Iterable[Request] | None:
        """Say which running requests get tokens, and in which order.

        In the step: once, at its beginning.
        Default: all, in order of admission.
        Returns: running requests, each at most once; those left out sit this step out and keep
        their place · None, no opinion.

        Parameters:
            running: the running requests in order of admission.
            step: the plan, still empty.

        May change nothing. Cost: per step.
        """

    @hookspec(firstresult=True)
    def pick_displaced(
        self, request: Request, candidates: Sequence[Request], step: StepView
    ) -> Request | Answer | None:
        """Choose a running request that gives its place to a refused waiting one.

        In the step: after a refusal for slot, budget or blocks; the waiting request is then tried
        again, and refused again asks for one more.
        Default: nobody.
        Returns: one of `candidates` · None or HOLD, nobody.

        Parameters:
            request: the waiting request that was refused.
            candidates: running requests not admitted in this step, in order of admission.
            step: the plan so far; `step.refused[request]` is the reason.

        May change nothing. Cost: rare.
        """

    @hookspec(firstresult=True)
    def pick_preempt_victim(
        self, request: Request, candidates: Sequence[Request], step: StepView
    ) -> Request | Answer | None:
        """Choose who gives blocks back when `allocate` refuses.

        In the step: whenever a running request (or, with paused ones about, an admission) gets
        no blocks; asked again until they suffice.
        Default: the last candidate.
        Returns: one of `candidates` (`request` itself may be one: it loses its place and the
        running half ends) · HOLD, the needy request sits out and the half goes on · None, no
        opinion.

        Parameters:
            request: the one that needs blocks.
            candidates: the paused requests while there are any, else the running ones in order
                of admission.
            step: the plan so far.

        May change nothing. Cost: rare.
        """

    @hookspec(firstresult=True)
    def preempt_mode(self, request: Request, displaced: bool, step: StepView) -> PreemptMode | None:
        """Say what becomes of the victim's KV.

        In the step: when a request loses its place.
        Default: RECOMPUTE.
        Returns: RECOMPUTE · SWAP, store it with the owner of external KV · KEEP, pause it with its
        blocks, only when `displaced` · None, no opinion.

        Parameters:
            request: the victim.
            displaced: True if a waiting request takes its place, False if blocks ran out.
            step: the plan so far.

        May change nothing. Cost: rare.
        """

    @hookspec(firstresult=True)
    def pick_rejected(self, waiting: WaitingView, step: StepView) -> Iterable[Request] | None:
        """Shed load: name waiting requests that end now, unserved.

        In the step: once, at its beginning.
        Default: nobody.
        Returns: requests of `waiting`, which end as rejected · None or (), nobody.

        Parameters:
            waiting: the queue in order.
            step: the plan, still empty.

        May change nothing. Cost: per step.
        """

    @hookspec(firstresult=True)
    def compute_num_new_tokens(
        self, request: Request, num_new_tokens: int, hit: Hit | None, step: StepView
    ) -> int | None:
        """Say how many tokens a request should get in this step.

        In the step: for each running request and each admission, before caps and clamps.
        Default: all that it knows and has not computed.
        Returns: a count of at least 0 (0 = none in this step). More than `num_new_tokens` is
        padding with that many -1 drafts, for an admission that has one token to compute; it is
        never split · None, no opinion. To want less for one reason, prefer `cap_num_new_tokens`.

        Parameters:
            request: whose tokens.
            num_new_tokens: the default answer.
            hit: what the admission got for nothing, or None for a running request.
            step: the plan so far.

        May change nothing. Cost: per request, each step: an implementation slows every decode.
        """

    @hookspec(firstresult=True)
    def split_prefill(self, request: Request, num_new_tokens: int, step: StepView) -> int | None:
        """Say how much of an admission starts where the budget does not hold all of it.

        In the step: at an admission whose count exceeds `step.budget_left`.
        Default: nothing: the prompt runs whole or waits (chunked prefill off).
        Returns: tokens to start with, clamped to the budget · 0 or None, wait.

        Parameters:
            request: the waiting request.
            num_new_tokens: what it wants.
            step: the plan so far.

        May change nothing. Cost: per admission.
        """

    @hookspec(firstresult=True)
    def compute_num_drafts(self, request: Request, step: StepView) -> int | None:
        """Say how many drafts a request shall have in the next step.

        In the step: at its end, with the batch known, for each request that samples; only where
        `config.num_spec_tokens` is above 0.
        Default: `config.num_spec_tokens`.
        Returns: a count, clamped to 0..num_spec_tokens · None, no opinion.

        Parameters:
            request: a request of the plan.
            step: the complete plan.

        May change nothing. Cost: per request, each step with drafts.
        """

    @hookspec(firstresult=True)
    def propose_drafts(self, request: Request, num_drafts: int) -> list[int] | None:
        """Propose the next tokens of a request, to be verified in its next step.

        In the step: after its sampled tokens are known, unless the runner drafts itself.
        Default: no drafts.
        Returns: at most `num_drafts` token ids · () or None, none.

        Parameters:
            request: it has just sampled.
            num_drafts: the most that count.

        May change nothing. Cost: per request, each step with drafts.
        """

    @hookspec(firstresult=True)
    def predict_output_len(self, request: Request) -> float | None:
        """Predict how many tokens the request will sample in all.

        When: whenever a policy calls `step.predict(request)` or `setup.predict(request)`.
        Default: None, unknown.
        Returns: a number of tokens · None, no opinion.

        Parameters:
            request: whose length. Its true length is not to be seen.

        May change nothing. Cost: as often as policies ask.
        """


# ---------------------------------------------------------------------------------------------
# own: one plugin a group, checked when the stack is built
# ---------------------------------------------------------------------------------------------


class OwnBlocks:
    """Who owns KV blocks. Without an owner memory is unlimited and nothing is allocated."""

    @hookspec(firstresult=True)
    def match_prefix(self, request: Request) -> Hit | None:
        """Find leading tokens of the request that are in the cache already.

        In the step: at each look at a waiting request of which nothing is computed.
        Default: nothing found.
        Returns: a Hit of at most `request.num_tokens - 1` local tokens · None, nothing.

        Parameters:
            request: the waiting request.

        May change nothing: no count moves before `allocate`. Cost: per admission attempt.
        """

    @hookspec(firstresult=True)
    def allocate(
        self, request: Request, num_new_tokens: int, hit: Hit | None, step: StepView
    ) -> BlockIds | bool | None:
        """Give the request the blocks for its next tokens, all or nothing.

        In the step: at an admission, and for a running request once its count passes
        `request.num_slots`, which this hook keeps up to date.
        Default (no owner): no blocks, no limit.
        Returns: the new block ids, in table order, after the hit's (an empty list if it needs
        none) · False, no room, and nothing was changed.

        Parameters:
            request: who needs blocks; `request.num_computed_tokens` are in place.
            num_new_tokens: tokens to be computed in this step, drafts included; 0 for an
                admission whose external part is loaded first.
            hit: what an admission got, or None for a running request.
            step: the plan so far.

        May change the owner's own books and `request.num_slots`. Cost: per request, once a block.
        """

    @hookspec(firstresult=True)
    def publish(self, request: Request, num_tokens: int) -> None:
        """Let others find what is full among the first `num_tokens` tokens of the request.

        In the step: when a load has landed, and in async mode when outputs have come back.
        Default: nothing.

        Parameters:
            request: who computed or loaded them.
            num_tokens: leading tokens that are known and computed.

        May change the owner's own books. Cost: per request in async mode, else rare.
        """

    @hookspec(firstresult=True)
    def withdraw(self, request: Request, block_ids: BlockIds) -> None:
        """Take back what `allocate` gave in this step, since the request will not compute it.

        In the step: when a planned request is displaced, or the plan is dropped.
        Default: nothing.

        Parameters:
            request: `request.num_computed_tokens` still stands where it was before the step.
            block_ids: what `allocate` returned in this step.

        Blocks go back to the pool, and no hash may remain on what is not computed. May change
        the owner's own books and `request.num_slots`. Cost: rare.
        """

    @hookspec(firstresult=True)
    def release(self, request: Request) -> None:
        """Take all blocks of the request back.

        In the step: when it is preempted, or has ended.
        Default: nothing.

        Parameters:
            request: `request.num_computed_tokens` tells how much of it was computed; nothing past
                it may stay findable.

        May change the owner's own books. Cost: per finish or preemption.
        """

    @hookspec(firstresult=True)
    def reset_prefix_cache(self) -> bool | None:
        """Forget the names of all cached blocks, so that nothing is found in the cache.

        When: between steps, when somebody asks for it.
        Default: refused.
        Returns: True, nothing is named any more · False or None, refused, and nothing was changed
        (as where requests hold blocks).

        May change the owner's own books. Cost: rare.
        """

    @hookspec(firstresult=True)
    def kv_view(self, config: SchedulerConfig) -> KvView | None:
        """Set the pool up and give its read-only face, which policies see as `step.kv`.

        When: once, first of all when the scheduler is built.
        Default: None, no owner.
        Returns: a KvView, whose properties stay live.

        Parameters:
            config: the limits, block size and count among them.

        Cost: set-up.
        """


class OwnExternal:
    """Who owns KV outside the pool: host memory, another machine."""

    @hookspec(firstresult=True)
    def lookup_external(self, request: Request, hit: Hit) -> ExternalHit | Answer | None:
        """Say how many tokens after the local hit are held elsewhere.

        In the step: right after `match_prefix`, at each look at a waiting request of which
        nothing is computed.
        Default: none.
        Returns: an ExternalHit (asynchronous ones may cover every token, synchronous ones all but
        the last) · LATER, ask again in another step; the request is set aside · None, none.

        Parameters:
            request: the waiting request.
            hit: its local hit.

        May change the owner's own books. Cost: per admission attempt.
        """

    @hookspec(firstresult=True)
    def external_allocated(self, request: Request, block_ids: BlockIds, hit: Hit) -> None:
        """Hear that the request got its blocks, so that a load can be planned.

        In the step: after `allocate`, at every admission; of a request whose load has landed a
        second time, with no external tokens.
        Default: nothing.

        Parameters:
            request: whose blocks.
            block_ids: its whole block table.
            hit: `hit.num_external_tokens` are to be loaded.

        May change the owner's own books. Cost: per admission.
        """

    @hookspec(firstresult=True)
    def store_external(self, request: Request, block_ids: BlockIds) -> None:
        """Hear that the request leaves its blocks, so that they can be stored.

        When: before `release`, at the end of every request and at a preemption in SWAP mode.
        To keep the blocks while they are read, answer False to `may_release`.
        Default: nothing.

        Parameters:
            request: who leaves.
            block_ids: blocks with computed tokens, in table order; empty if it never started.

        May change the owner's own books. Cost: per finish.
        """


class OwnEncoder:
    """Who owns the cache of encoder outputs (images and the like)."""

    @hookspec(firstresult=True)
    def allocate_encoder(
        self, request: Request, num_new_tokens: int, step: StepView
    ) -> Sequence[int] | None:
        """Reserve room for the encoder outputs that this step's tokens need.

        In the step: after blocks were allocated, for each chunk of a prompt with encoder inputs.
        What does not fit must have been capped by the same plugin's `cap_num_new_tokens`.
        Default: nothing is encoded.
        Returns: indices into `request.encoder_inputs` to run now · () or None, none.

        Parameters:
            request: a planned request.
            num_new_tokens: its tokens in this step.
            step: the plan so far.

        May change the owner's own books. Cost: per planned chunk of such a prompt.
        """

    @hookspec(firstresult=True)
    def release_encoder(self, request: Request) -> Sequence[str] | None:
        """Take back the request's room in the encoder cache.

        When: it loses its place, has ended, or its plan was dropped; it may hold none.
        Default: nothing.
        Returns: content ids that the runner may drop · () or None, none.

        Parameters:
            request: whose room.

        May change the owner's own books. Cost: rare.
        """


class OwnOrder:
    """Who owns the order of the waiting queue; of several plugins the last in the stack."""

    @hookspec(firstresult=True)
    def order_waiting(self, request: Request) -> Any:
        """Give the sort key of a request in the waiting queue, lowest first.

        When: each time it enters the queue (a preempted one has status PREEMPTED), and on
        `waiting.rekey`. Equal keys keep the order of entry.
        Default: order of entry; a preempted request goes to the head.
        Returns: any key; all keys of one queue must compare with one another.

        Parameters:
            request: who enters.

        May change the plugin's own books. Cost: per entry.
        """


# ---------------------------------------------------------------------------------------------
# limit: the least of the ints, all of the bools
# ---------------------------------------------------------------------------------------------


class Limit:
    """Bounds. Every implementation is asked; the tightest answer counts; None is no bound."""

    @hookspec
    def cap_num_new_tokens(
        self, request: Request, num_new_tokens: int, step: StepView
    ) -> int | None:
        """Bound the tokens that a request gets in this step.

        In the step: after `compute_num_new_tokens`, unless the count is 1.
        Default: no bound.
        Returns: the most tokens, at least 0 · None, no bound. The least of all counts.

        Parameters:
            request: a running request or one about to be admitted.
            num_new_tokens: what it would get.
            step: the plan so far.

        May change nothing. Cost: per request with more than one token.
        """

    @hookspec
    def may_admit(
        self, request: Request, num_new_tokens: int, hit: Hit, step: StepView
    ) -> bool | None:
        """Veto an admission.

        In the step: last of all, just before `allocate`.
        Default: allowed.
        Returns: False, refuse it in this step · True or None, no objection.

        Parameters:
            request: the waiting request.
            num_new_tokens: tokens it would compute in this step.
            hit: what it gets for nothing.
            step: the plan so far.

        May change nothing. Cost: per admission attempt.
        """

    @hookspec
    def is_ready(self, request: Request) -> bool | None:
        """Say whether a request can start at all (grammar compiled, adapter loaded, ...).

        In the step: at its beginning, for new and for parked requests; False parks it.
        Default: ready.
        Returns: False, not yet · True or None, no objection. A RequestError ends the request.

        Parameters:
            request: new or parked.

        May change the plugin's own books. Cost: per parked request, each step.
        """

    @hookspec
    def may_release(self, request: Request) -> bool | None:
        """Say whether the blocks of a request that ended may go back.

        When: right after `store_external`; False holds the blocks until the runner reports the
        request in `finished_sending`, or a later poll finds no objection.
        Default: yes.
        Returns: False, something still reads them · True or None, no objection.

        Parameters:
            request: it has ended.

        May change nothing. Cost: per finish, then per held request when blocks run out.
        """


# ---------------------------------------------------------------------------------------------
# collect: joined; a field twice is an error
# ---------------------------------------------------------------------------------------------


class Collect:
    """Additions to the step's output."""

    @hookspec
    def extend_output(self, output: SchedulerOutput, step: StepView) -> Mapping[str, Any] | None:
        """Add fields to the step's output: grammar bitmask, connector metadata, ...

        In the step: at its end, when the plan is checked and the output is built.
        Default: nothing.
        Returns: {field: value}; a field of SchedulerOutput is set, any other lands in
        `output.extra` · None, nothing. Two plugins giving one field is an error.

        Parameters:
            output: the output so far, read-only.
            step: the complete plan.

        May change nothing. Cost: per step.
        """


# ---------------------------------------------------------------------------------------------
# observe: everyone, the result is ignored
# ---------------------------------------------------------------------------------------------


class Observe:
    """News. Everyone hears it; nobody's answer counts."""

    @hookspec
    def request_arrived(self, request: Request, waiting: WaitingView) -> None:
        """Hear of a new request before it enters the queue.

        When: in `add_request`, after the core's own checks. Raising RequestError refuses it. After
        a swap of the stack also for every request that is under way, WAITING or PREEMPTED and with
        the tokens it has; an error then keeps the old stack.

        Parameters:
            request: the new one.
            waiting: the queue without it; `waiting.rekey` is allowed.

        May change the plugin's own books and `request.stash`. Cost: per request.
        """

    @hookspec
    def request_admitted(self, request: Request, hit: Hit, resumed: bool, step: StepView) -> None:
        """Hear that a request got a place: the point at which to charge for it.

        In the step: at once, before the next `select_waiting`.

        Parameters:
            request: who was admitted.
            hit: what it got for nothing.
            resumed: True if it had run before.
            step: the plan, with the request in it.

        May change the plugin's own books and `request.stash`. Cost: per admission.
        """

    @hookspec
    def request_preempted(
        self, request: Request, mode: PreemptMode, num_lost_tokens: int, step: StepView
    ) -> None:
        """Hear that a request lost its place.

        In the step: at once.

        Parameters:
            request: the victim.
            mode: what became of its KV.
            num_lost_tokens: computed tokens that are gone (0 if kept).
            step: the plan, without the request.

        May change the plugin's own books and `request.stash`. Cost: rare.
        """

    @hookspec
    def request_finished(self, request: Request) -> None:
        """Hear that a request has ended, for whatever reason (`request.status`).

        When: after its blocks were released or held back.

        Parameters:
            request: who ended.

        May change the plugin's own books. Cost: per request.
        """

    @hookspec
    def step_planned(self, output: SchedulerOutput, step: StepView) -> None:
        """Hear of the whole plan, just before it is handed out.

        In the step: last of `schedule`.

        Parameters:
            output: the step's output, read-only.
            step: the complete plan.

        May change the plugin's own books. Cost: per step.
        """

    @hookspec
    def step_finished(self, report: StepReport) -> None:
        """Hear what a step did: duration and tokens per request by kind.

        When: last of `update_from_output`.

        Parameters:
            report: see StepReport.

        May change the plugin's own books; `setup.waiting.rekey` is allowed. Cost: per step, and
        building the report costs the core time per request.
        """


# ---------------------------------------------------------------------------------------------
# set up: everyone, once
# ---------------------------------------------------------------------------------------------


class SetUp:
    """Before the first step."""

    @hookspec
    def scheduler_built(self, setup: Setup) -> None:
        """Learn the limits, and take what only the core can give.

        When: once, when the scheduler is complete.

        Parameters:
            setup: config, clock, waiting queue, kv view, latency model, `setup.predict`, and
                `setup.random(self)`, the plugin's own seeded stream.

        May change the plugin's own books. Raise PluginError if the stack cannot work. Cost: set-up.
        """


KINDS: Final = (
    Decide,
    OwnBlocks,
    OwnExternal,
    OwnEncoder,
    OwnOrder,
    Limit,
    Collect,
    Observe,
    SetUp,
)
"""Every spec class, in the order of this page."""

KIND_OF: Final[dict[str, type]] = {
    hook: kind for kind in KINDS for hook in vars(kind) if not hook.startswith("_")
}
"""The spec class of each hook, hooks in the order of this page."""

PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    hook: tuple(inspect.signature(getattr(kind, hook)).parameters)[1:]
    for hook, kind in KIND_OF.items()
}
"""The arguments of each hook, in the order in which the core gives them."""
