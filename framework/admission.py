"""Admitting waiting requests: slot, budget, look-ups, count, gate, blocks, in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework import answers, places
from framework.books import Books
from framework.hooks import NOTHING
from framework.plan import Admission, Refusal, StepPlan
from framework.protocols import HOLD, LATER, NO_HIT, Hit
from framework.request import UNLIMITED, Request, Status
from framework.room import count_tokens, find_blocks, find_encoder_room

if TYPE_CHECKING:
    from framework.output import BlockIds


def next_waiting(books: Books, plan: StepPlan) -> Request | None:
    """Who is tried next; None ends the admissions. A landed load comes before the policy."""
    landed = next((request for request in books.holders if request in books.landed), None)
    if landed is not None:
        return None if landed in plan.refused else landed
    waiting = books.waiting
    if not waiting:
        return None
    answer = books.hooks.select_waiting(waiting, plan.view)
    if answer is None:
        chosen: Request | None = waiting[0]
    else:
        chosen = answers.one_of(books.hooks, "select_waiting", answer, waiting, None)
    return None if chosen in plan.refused else chosen


def admit(books: Books, request: Request, plan: StepPlan) -> None:
    """Admit the request, set it aside, or note why it was refused."""
    hooks = books.hooks
    while (refusal := _try(books, request, plan)) is not None:
        plan.refused[request] = refusal
        if refusal is Refusal.GATE or hooks.pick_displaced is NOTHING:
            return
        candidates = _displaceable(books, plan)
        if not candidates:
            return
        answer = hooks.pick_displaced(request, candidates, plan.view)
        if answer is None or answer is HOLD:
            return
        victim = answers.one_of(hooks, "pick_displaced", answer, candidates, request)
        assert victim is not None
        places.take_place(books, victim, plan, displaced=True)
    plan.refused.pop(request, None)


def _displaceable(books: Books, plan: StepPlan) -> list[Request]:
    kv = books.kv
    return [
        request
        for request in books.running
        if request not in plan.admitted
        and (kv is None or request not in plan.new_blocks or kv.can_withdraw(request))
    ]


def _try(books: Books, request: Request, plan: StepPlan) -> Refusal | None:
    """None if the request was admitted or set aside."""
    if len(books.running) >= plan.num_slots:
        return Refusal.SLOT
    if plan.budget_left <= 0:
        return Refusal.BUDGET
    if request in books.landed:
        return _admit_landed(books, request, plan)
    if request.status is Status.PAUSED:
        return _place(books, request, NO_HIT, plan)
    hit = _look_up(books, request)
    if hit is None:
        books.waiting.set_aside(request)
        plan.num_deferred += 1
        return None
    return _try_with(books, request, hit, plan)


def _try_with(books: Books, request: Request, hit: Hit, plan: StepPlan) -> Refusal | None:
    """The hit counts as computed from here on, unless the request stays where it is."""
    request.num_computed_tokens = hit.num_tokens
    try:
        if hit.is_async:
            return _begin_load(books, request, hit, plan)
        return _place(books, request, hit, plan)
    finally:
        if request in books.waiting:
            request.num_computed_tokens = 0


def _look_up(books: Books, request: Request) -> Hit | None:
    hooks = books.hooks
    hit = answers.local_hit(hooks, hooks.match_prefix(request), request)
    if hooks.lookup_external is NOTHING:
        return hit
    found = hooks.lookup_external(request, hit)
    return None if found is LATER else answers.external_hit(hooks, found, request, hit)


def _admit_landed(books: Books, request: Request, plan: StepPlan) -> Refusal | None:
    if request.status is Status.WAITING_FOR_REMOTE_KVS:
        books.hooks.publish(request, request.num_computed_tokens)
        request.status = Status.PREEMPTED if request.num_preemptions else Status.WAITING
        if request.num_computed_tokens == request.num_tokens:
            request.num_computed_tokens -= 1  # the last one is computed again, for its logits
    return _place(books, request, NO_HIT, plan)


def _begin_load(books: Books, request: Request, hit: Hit, plan: StepPlan) -> Refusal | None:
    rank = books.holders.rank_of(request, Status.WAITING_FOR_REMOTE_KVS)
    if find_blocks(books, request, 0, hit, plan) is None:
        return Refusal.BLOCKS
    try:
        books.hooks.external_allocated(request, _table(books, request), hit)
    except Exception:
        request.num_computed_tokens = hit.num_local_tokens
        books.hooks.release(request)
        request.num_slots = UNLIMITED if books.kv is None else 0
        raise
    request.status = Status.WAITING_FOR_REMOTE_KVS
    books.waiting.take(request)
    books.holders.put_back(request, rank)
    plan.num_loads_begun += 1
    books.note("loading", request, hit.num_external_tokens)
    return None


def _place(books: Books, request: Request, hit: Hit, plan: StepPlan) -> Refusal | None:
    hooks = books.hooks
    num_new_tokens = count_tokens(books, request, hit, plan)
    if num_new_tokens == 0:
        return Refusal.BUDGET
    if hooks.may_admit is not NOTHING and not hooks.may_admit(
        request, num_new_tokens, hit, plan.view
    ):
        return Refusal.GATE
    blocks = find_blocks(books, request, num_new_tokens, hit, plan)
    if blocks is None:
        return Refusal.BLOCKS
    plan.new_blocks[request] = blocks
    _take_slot(books, request, hit, num_new_tokens, plan)
    _announce(books, request, hit, plan)
    return None


def _take_slot(
    books: Books, request: Request, hit: Hit, num_new_tokens: int, plan: StepPlan
) -> None:
    status = request.status
    from_holders = request in books.landed
    held_blocks = from_holders or status is Status.PAUSED
    rank = (books.holders if from_holders else books.waiting).take(request)
    books.landed.discard(request)
    if status is Status.PAUSED:
        books.paused.remove(request)
    computed_before = request.num_computed_tokens if held_blocks else 0
    plan.admitted[request] = Admission(
        hit, request.num_preemptions > 0, rank, status, computed_before, held_blocks
    )
    request.status = Status.RUNNING
    books.running.append(request)
    plan.add(request, num_new_tokens)


def _announce(books: Books, request: Request, hit: Hit, plan: StepPlan) -> None:
    hooks = books.hooks
    admission = plan.admitted[request]
    if hooks.external_allocated is not NOTHING:
        hooks.external_allocated(request, _table(books, request), hit)
    find_encoder_room(books, request, plan)
    hooks.request_admitted(request, hit, admission.resumed, plan.view)


def _table(books: Books, request: Request) -> BlockIds:
    return [] if books.kv is None else books.kv.block_ids(request)
