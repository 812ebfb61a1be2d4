"""Close a plan: check it, build the step's output, count it as done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from framework import answers
from framework.books import Books, InFlight
from framework.errors import StallError
from framework.hooks import NOTHING
from framework.output import CachedRequestData, NewRequestData, SchedulerOutput
from framework.request import Request, Status

if TYPE_CHECKING:
    from framework.plan import StepPlan

_FIELDS = frozenset(field.name for field in attrs.fields(SchedulerOutput))


def hand_out(books: Books, plan: StepPlan) -> SchedulerOutput:
    """Everything that may fail comes first; from `_commit` on nothing does."""
    plan.check(books.config.max_num_seqs, len(books.running))
    _check_stall(books, plan)
    output = _output(books, plan)
    if books.config.num_spec_tokens:
        output.num_drafts = _num_drafts(books, plan)
    if books.hooks.extend_output is not NOTHING:
        extra = books.hooks.extend_output(output, plan.view) or {}
        for name, value in extra.items():
            if name in _FIELDS:
                setattr(output, name, value)
            else:
                output.extra[name] = value
    if books.hooks.step_planned is not NOTHING:
        books.hooks.step_planned(output, plan.view)
    _commit(books, plan, output)
    return output


def _output(books: Books, plan: StepPlan) -> SchedulerOutput:
    continuing = plan.requests[: plan.num_running_planned] if plan.admitted else plan.requests
    cached = CachedRequestData(
        [request.request_id for request in continuing],
        [request.num_computed_tokens for request in continuing],
        [request.num_known_tokens - request.num_prompt_tokens for request in continuing],
    )
    if books.config.num_spec_tokens:
        cached.num_output_tokens = [
            request.num_output_tokens + request.num_output_placeholders for request in continuing
        ]
    for request, blocks in plan.new_blocks.items():
        if blocks and request not in plan.admitted:
            cached.new_block_ids[request.request_id] = blocks
    new = [
        data
        for request, admission in plan.admitted.items()
        if (data := _admitted(books, request, admission.resumed, cached)) is not None
    ]
    kv = books.kv
    return SchedulerOutput(
        step=plan.step,
        num_scheduled_tokens=plan.num_scheduled_tokens,
        scheduled_new_reqs=new,
        scheduled_cached_reqs=cached,
        total_num_scheduled_tokens=plan.budget - plan.budget_left,
        scheduled_spec_decode_tokens=plan.drafts,
        scheduled_encoder_inputs=plan.encoder_inputs,
        num_common_prefix_blocks=0 if kv is None else kv.num_common_prefix_blocks(books.running),
        preempted_req_ids=_lost(books, plan),
        finished_req_ids=tuple(books.finished_ids),
        free_encoder_input_ids=tuple(books.free_encoder_ids),
        drop_kept=books.drop_kept,
    )


def _lost(books: Books, plan: StepPlan) -> list[str]:
    """Who lost its place, in this plan or in one that was dropped, and is not back already."""
    if not books.lost_untold:
        return plan.preempted
    planned = plan.num_scheduled_tokens
    untold = [name for name in dict.fromkeys(books.lost_untold) if name not in plan.preempted]
    return [name for name in untold if name not in planned] + plan.preempted


def _admitted(
    books: Books, request: Request, resumed: bool, cached: CachedRequestData
) -> NewRequestData | None:
    blocks = [] if books.kv is None else books.kv.block_ids(request)
    if not resumed:
        return NewRequestData(
            request.request_id,
            request.prompt_token_ids,
            request.sampling_params,
            blocks,
            request.num_computed_tokens,
            request.adapter,
            request.encoder_inputs,
            request.needs_pooling,
            request.eos_token_ids,
        )
    cached.req_ids.append(request.request_id)
    cached.num_computed_tokens.append(request.num_computed_tokens)
    cached.num_output_tokens.append(request.num_output_tokens + request.num_output_placeholders)
    cached.new_block_ids[request.request_id] = blocks
    cached.resumed_req_ids.add(request.request_id)
    cached.all_token_ids[request.request_id] = list(request.all_token_ids)
    return None


def _num_drafts(books: Books, plan: StepPlan) -> dict[str, int]:
    most, hooks = books.config.num_spec_tokens, books.hooks
    wanted: dict[str, int] = {}
    for request in plan.requests:
        if request in plan.cut:
            continue
        answer = hooks.compute_num_drafts(request, plan.view)
        if answer is not None:
            answer = answers.whole(hooks, "compute_num_drafts", answer, request)
        wanted[request.request_id] = most if answer is None else min(answer, most)
    return wanted


def _check_stall(books: Books, plan: StepPlan) -> None:
    """Raise at the second step in a row in which nothing moved and nothing will."""
    moved = plan.requests or plan.lost or plan.num_loads_begun or plan.num_rejected
    if moved or not books.requests or books.awaits_event(plan):
        books.num_empty_steps = 0
        return
    books.num_empty_steps += 1
    if books.num_empty_steps == 1:
        return
    books.num_empty_steps = 0
    blocked, reason = next(
        ((request, refusal.value) for request, refusal in plan.refused.items()),
        (next(iter(books.requests.values())), "the plugins chose nobody"),
    )
    raise StallError(
        f"step {plan.step}: nothing can be scheduled and nothing outside is awaited; "
        f"{len(books.requests)} requests remain; {blocked.request_id!r} is blocked: {reason}",
        blocked.request_id,
    )


def _commit(books: Books, plan: StepPlan, output: SchedulerOutput) -> None:
    """The step counts as done."""
    for request, num_tokens in zip(plan.requests, plan.num_scheduled_tokens.values(), strict=True):
        request.num_computed_tokens += num_tokens
    _flag_chunks(books, plan)
    if books.config.num_spec_tokens or books.config.async_scheduling:
        _take_drafts(books, plan, output)
    for request, admission in plan.admitted.items():
        books.counters.count_admission(request, admission.hit, admission.resumed)
        kind = "resumed" if admission.resumed else "admitted"
        books.note(kind, request, admission.hit.num_tokens)
    books.waiting.restore()
    books.holders.restore()
    books.finished_ids.clear()
    books.lost_untold.clear()
    books.free_encoder_ids.clear()
    books.drop_kept = False
    books.in_flight.append(
        InFlight(output, plan.requests, plan.now, plan.drafts, plan.admitted, plan.cut)
    )
    books.num_steps += 1
    books.counters.num_steps += 1
    books.counters.num_scheduled_tokens += output.total_num_scheduled_tokens


def _flag_chunks(books: Books, plan: StepPlan) -> None:
    if not (books.partial or plan.cut):
        return
    planned = plan.num_scheduled_tokens
    still = []
    for request in books.partial:
        if request.request_id in planned:
            request.is_prefill_chunk = False
        elif request.status is Status.RUNNING and request not in plan.cut:
            still.append(request)
    for request in plan.cut:
        request.is_prefill_chunk = True
    books.partial = [*still, *plan.cut]


def _take_drafts(books: Books, plan: StepPlan, output: SchedulerOutput) -> None:
    """Pending drafts are spent; in async mode placeholders stand for what will be sampled."""
    is_async = books.config.async_scheduling
    for request in plan.requests:
        request.set_drafts([])
        if is_async and request not in plan.cut and not request.needs_pooling:
            num_drafts = len(plan.drafts.get(request.request_id, ()))
            request.set_placeholders(request.num_output_placeholders + 1 + num_drafts)
            request.set_drafts([-1] * output.num_drafts.get(request.request_id, 0))
