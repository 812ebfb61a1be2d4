"""Losing one's place: preemption, displacement, the end of a request, a plan that is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framework import answers
from framework.books import Books, find_in_flight
from framework.hooks import NOTHING
from framework.request import UNLIMITED, PreemptMode, Request, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from framework.plan import StepPlan
    from framework.waiting import Rank


def take_place(books: Books, victim: Request, plan: StepPlan, *, displaced: bool) -> None:
    """The victim loses its place: its part of the plan, its slot, and mostly its blocks."""
    hooks, was_paused = books.hooks, victim.status is Status.PAUSED
    answer = hooks.preempt_mode(victim, displaced, plan.view)
    mode = answers.mode(hooks, answer, displaced=displaced, request=victim)
    status = Status.PAUSED if mode is PreemptMode.KEEP else Status.PREEMPTED
    rank = None if was_paused else books.waiting.rank_of(victim, status)
    if mode is PreemptMode.SWAP:
        hooks.store_external(victim, _computed_blocks(books, victim))
    errors: list[Exception] = []
    _withdraw(books, victim, plan, mode, errors)
    victim.set_drafts([])
    lost = 0 if mode is PreemptMode.KEEP else victim.num_computed_tokens
    victim.num_once_computed = max(victim.num_once_computed, lost)
    _leave_slot(books, victim, status, rank, errors)
    plan.lost.add(victim)
    if not was_paused:
        plan.preempted.append(victim.request_id)
    victim.num_preemptions += 1
    books.counters.num_preemptions += 1
    books.counters.num_displacements += displaced
    books.counters.num_lost_tokens += lost
    books.note("displaced" if displaced else "preempted", victim, mode.value)
    attempt(errors, hooks.request_preempted, victim, mode, lost, plan.view)
    if errors:
        raise errors[0]


def _leave_slot(
    books: Books, victim: Request, status: Status, rank: Rank | None, errors: list[Exception]
) -> None:
    victim.is_prefill_chunk = False
    if victim.status is Status.PAUSED:
        books.paused.remove(victim)
    if status is Status.PAUSED:
        books.paused.append(victim)
    else:
        attempt(errors, books.hooks.release, victim)
        victim.num_computed_tokens = 0
        victim.num_slots = UNLIMITED if books.kv is None else 0
        victim.set_placeholders(0)
    victim.status = status
    if rank is None:  # it was paused, and keeps its place in the queue
        return
    books.running.remove(victim)
    victim.num_awaited_outputs = find_in_flight(books, victim)
    books.waiting.put_back(victim, rank)
    books.waiting.set_aside(victim)
    if victim.num_awaited_outputs:
        books.awaiting.add(victim)


def _withdraw(
    books: Books, victim: Request, plan: StepPlan, mode: PreemptMode, errors: list[Exception]
) -> None:
    _free_encoder_room(books, victim, errors)
    if victim.request_id not in plan.num_scheduled_tokens:
        return
    blocks = plan.withdraw(victim)
    if blocks is not None and mode is PreemptMode.KEEP:  # else the whole table is released
        attempt(errors, books.hooks.withdraw, victim, blocks)


def _free_encoder_room(books: Books, request: Request, errors: list[Exception]) -> None:
    if request.encoder_inputs:
        freed = attempt(errors, books.hooks.release_encoder, request)
        books.free_encoder_ids.extend(freed or ())


def unload(books: Books, request: Request) -> None:
    """A landed load gives its blocks back; the request waits as if it had not begun."""
    status = Status.PREEMPTED if request.num_preemptions else Status.WAITING
    rank = books.waiting.rank_of(request, status)
    errors: list[Exception] = []
    attempt(errors, books.hooks.release, request)
    books.holders.take(request)
    books.landed.remove(request)
    request.status = status
    request.num_computed_tokens = 0
    request.num_slots = UNLIMITED if books.kv is None else 0
    books.note("unloaded", request)
    books.waiting.put_back(request, rank)
    books.waiting.set_aside(request)
    if errors:
        raise errors[0]


def drop(books: Books, plan: StepPlan) -> list[Exception]:
    """A plugin failed: undo the plan. Victims stay victims, loads that began go on.

    Returns what failed further while it was undone; the books are in order all the same.
    """
    errors: list[Exception] = []
    for request in reversed(plan.requests):
        blocks = plan.new_blocks.get(request)
        _free_encoder_room(books, request, errors)
        admission = plan.admitted.get(request)
        if admission is None or admission.held_blocks:
            if blocks is not None:
                attempt(errors, books.hooks.withdraw, request, blocks)
        else:
            request.num_computed_tokens = admission.hit.num_local_tokens  # nothing was loaded
            attempt(errors, books.hooks.release, request)
            request.num_slots = UNLIMITED if books.kv is None else 0
        if admission is not None:
            books.running.remove(request)
            _restore_waiter(books, request, plan)
    books.lost_untold += plan.preempted
    books.waiting.restore()
    books.holders.restore()
    return errors


def _restore_waiter(books: Books, request: Request, plan: StepPlan) -> None:
    admission = plan.admitted[request]
    request.status = admission.status
    request.num_computed_tokens = admission.num_computed_tokens
    if admission.status is Status.PAUSED:
        books.paused.append(request)
    if admission.held_blocks and admission.status is not Status.PAUSED:
        books.landed.add(request)
        books.holders.put_back(request, admission.rank)
    else:
        books.waiting.put_back(request, admission.rank)


def finish(books: Books, request: Request, status: Status) -> None:
    """End a request, wherever it stands; its blocks go back unless a transfer uses them."""
    was = request.status
    request.status = status
    if was is Status.RUNNING:
        books.running.remove(request)
    elif was is Status.PAUSED:
        books.paused.remove(request)
    books.awaiting.discard(request)
    is_loading = books.holders.remove(request) and request not in books.landed
    books.landed.discard(request)
    books.waiting.remove(request)
    request.set_drafts([])
    request.is_prefill_chunk = False
    del books.requests[request.request_id]
    books.finished_ids.append(request.request_id)
    books.counters.finished[status.value] += 1
    books.note("finished", request, status.value)
    errors: list[Exception] = []
    _give_blocks_back(books, request, errors, is_loading=is_loading)
    _free_encoder_room(books, request, errors)
    attempt(errors, books.hooks.request_finished, request)
    if errors:
        raise errors[0]


def refuse(books: Books, request: Request, status: Status, why: str) -> None:
    """End a waiting request unserved; its owner hears with the next result."""
    request.error = why
    books.refused.append(request)
    finish(books, request, status)


def _give_blocks_back(
    books: Books, request: Request, errors: list[Exception], *, is_loading: bool
) -> None:
    hooks = books.hooks
    if hooks.store_external is not NOTHING:
        attempt(errors, hooks.store_external, request, _computed_blocks(books, request))
    if hooks.may_release is not NOTHING and attempt(errors, hooks.may_release, request) is False:
        books.held[request.request_id] = request
    if is_loading:
        books.aborted_loads[request.request_id] = request
    elif request.request_id not in books.held:
        attempt(errors, hooks.release, request)


def attempt(errors: list[Exception], hook: Callable[..., Any], *arguments: Any) -> Any:
    """Call a hook whose failure must not keep the books from being brought up to date."""
    try:
        return hook(*arguments)
    except Exception as error:
        errors.append(error)
        return None


def release_held(books: Books) -> bool:
    """Poll the held blocks; True if some came back."""
    if not books.held:
        return False
    freed = [
        request
        for request in books.held.values()
        if request.request_id not in books.aborted_loads
        and books.hooks.may_release(request) is not False
    ]
    errors: list[Exception] = []
    for request in freed:
        del books.held[request.request_id]
        attempt(errors, books.hooks.release, request)
    if errors:
        raise errors[0]
    return bool(freed)


def transfers_done(
    books: Books, received: Sequence[str], sent: Sequence[str], errors: list[Exception]
) -> None:
    """The runner reports loads that have landed and stores that are through."""
    for request_id in sorted(received):
        aborted = books.aborted_loads.pop(request_id, None)
        if aborted is not None:
            if request_id not in books.held:
                attempt(errors, books.hooks.release, aborted)
            continue
        request = books.requests.get(request_id)
        if request is not None and request in books.holders:
            books.landed.add(request)
            books.note("loaded", request, request.num_computed_tokens)
    for request_id in sorted(sent):
        held = books.held.pop(request_id, None)
        if held is not None and request_id not in books.aborted_loads:
            attempt(errors, books.hooks.release, held)


def _computed_blocks(books: Books, request: Request) -> object:
    return [] if books.kv is None else books.kv.computed_block_ids(request)
