"""How many tokens a request gets, and the room for them: one way for both halves of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework import answers, places
from framework.hooks import NOTHING
from framework.request import Request, Status

if TYPE_CHECKING:
    from framework.books import Books
    from framework.output import BlockIds
    from framework.plan import StepPlan
    from framework.protocols import Hit


def count_tokens(books: Books, request: Request, hit: Hit | None, plan: StepPlan) -> int:
    """Decide, cap, clamp. `hit` is None for a running request. 0 = nothing in this step."""
    if request.num_output_placeholders and request.num_tokens + 1 >= request.length_limit:
        return 0  # what is in flight is sure to end it
    hooks = books.hooks
    num_wanted = num_known = request.num_known_tokens - request.num_computed_tokens
    if hooks.compute_num_new_tokens is not NOTHING:
        answer = hooks.compute_num_new_tokens(request, num_known, hit, plan.view)
        if answer is not None:
            num_wanted = answers.whole(hooks, "compute_num_new_tokens", answer, request)
    if num_wanted > num_known:
        return _padded(books, request, num_wanted, hit, plan)
    return _clamp(books, request, num_wanted, hit, plan)


def _padded(
    books: Books, request: Request, num_padded: int, hit: Hit | None, plan: StepPlan
) -> int:
    """With -1 drafts behind the last known token: all, or unpadded, or (budget) not now."""
    num_known = request.num_known_tokens - request.num_computed_tokens
    limit = 1 + books.config.num_spec_tokens
    if hit is None or num_known != 1 or num_padded > limit:
        allowed = f"at most {num_known} (padding, to at most {limit}, only at an admission with 1)"
        raise answers.wrong(books.hooks, "compute_num_new_tokens", num_padded, allowed, request)
    if _capped(books, request, num_padded, plan) < num_padded:
        return _clamp(books, request, num_known, hit, plan)
    return num_padded if num_padded <= plan.budget_left else 0


def _clamp(books: Books, request: Request, num_tokens: int, hit: Hit | None, plan: StepPlan) -> int:
    if num_tokens > 1:
        num_tokens = _capped(books, request, num_tokens, plan)
    most = books.config.max_model_len - (0 if request.needs_pooling else 1)
    room = most - request.num_computed_tokens
    num_tokens = max(0, min(num_tokens, room))
    if num_tokens <= plan.budget_left:
        return num_tokens
    if hit is None:
        return plan.budget_left
    part = books.hooks.split_prefill(request, num_tokens, plan.view)
    if part is None:
        return 0
    return min(answers.whole(books.hooks, "split_prefill", part, request), plan.budget_left)


def _capped(books: Books, request: Request, num_tokens: int, plan: StepPlan) -> int:
    hooks = books.hooks
    if hooks.cap_num_new_tokens is NOTHING:
        return num_tokens
    cap = hooks.cap_num_new_tokens(request, num_tokens, plan.view)
    if cap is None:
        return num_tokens
    return min(num_tokens, answers.whole(hooks, "cap_num_new_tokens", cap, request))


def find_blocks(
    books: Books, request: Request, num_tokens: int, hit: Hit | None, plan: StepPlan
) -> BlockIds | None:
    """Blocks for the tokens, taking the places of others while they are refused; None = no room."""
    hooks = books.hooks
    if hooks.allocate is NOTHING:
        return []
    while True:
        blocks = hooks.allocate(request, num_tokens, hit, plan.view)
        if blocks is True or blocks is None:
            raise answers.wrong(hooks, "allocate", blocks, "block ids, or False", request)
        if blocks is not False:
            return blocks
        if hit is None:
            plan.memory_refused = True
        if places.release_held(books):
            continue
        if _unload(books, request, hit, plan):
            continue
        candidates = books.paused or (books.running if hit is None else [])
        if not candidates or not _make_room(books, request, list(candidates), plan):
            return None


def find_encoder_room(books: Books, request: Request, plan: StepPlan) -> None:
    """Ask for room for the encoder outputs that a planned part of a prompt needs."""
    if not request.encoder_inputs or request.num_computed_tokens >= request.num_prompt_tokens:
        return
    num_tokens = plan.num_scheduled_tokens[request.request_id]
    inputs = books.hooks.allocate_encoder(request, num_tokens, plan.view)
    if inputs:
        plan.encoder_inputs[request.request_id] = inputs


def _unload(books: Books, request: Request, hit: Hit | None, plan: StepPlan) -> bool:
    """Take the blocks of a landed load where nobody else can give any: loads must not wait for one
    another's blocks, nor a running request lose its place to one that waits more than once."""
    if hit is None:
        is_stuck = not books.paused and books.running == [request] and request.num_preemptions > 0
    else:
        others_give = books.running or books.paused or books.held or books.aborted_loads
        is_stuck = not others_give and not plan.requests and len(books.holders) <= len(books.landed)
    landed = [one for one in books.holders if one is not request and one in books.landed]
    if not is_stuck or not landed:
        return False
    places.unload(books, landed[-1])
    return True


def _make_room(books: Books, request: Request, candidates: list[Request], plan: StepPlan) -> bool:
    """One victim gives its blocks back; False if nobody does, or the request itself did.

    A request that is alone and short of blocks for its drafts alone goes without them: taking its
    place would bring it back to the same point.
    """
    if candidates == [request] and request.spec_token_ids and not books.holders.num_all:
        request.set_drafts([])
        return False
    answer = books.hooks.pick_preempt_victim(request, candidates, plan.view)
    if answer is None:
        victim: Request | None = candidates[-1]
    else:
        victim = answers.one_of(books.hooks, "pick_preempt_victim", answer, candidates, request)
    if victim is None:
        return False
    places.take_place(books, victim, plan, displaced=False)
    return victim is not request and request.status is not Status.PREEMPTED
