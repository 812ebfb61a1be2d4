"""Open a plan: who is ready, who is shed, and in which order the running get tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework import answers, places
from framework.errors import HeadwayError, RequestError
from framework.hooks import NOTHING
from framework.plan import StepPlan
from framework.request import Request, Status
from framework.view import StepView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from framework.books import Books
    from framework.view import Surroundings


def open_plan(books: Books, around: Surroundings) -> StepPlan:
    """An empty plan, if one more step may be in flight."""
    config = books.config
    most = 2 if config.async_scheduling else 1
    if len(books.in_flight) >= most:
        raise HeadwayError(
            f"schedule() with {len(books.in_flight)} steps in flight; allowed: fewer than "
            f"{most} (async_scheduling is {config.async_scheduling}); call "
            "update_from_output() first"
        )
    plan = StepPlan(
        step=books.num_steps,
        now=books.clock.now(),
        budget=config.token_budget,
        budget_left=config.token_budget,
        num_slots=config.num_slots,
        num_running_at_start=len(books.running),
        num_waiting_at_start=books.num_waiting,
    )
    plan.view = StepView(plan, around)
    return plan


def begin(books: Books, plan: StepPlan) -> None:
    """Poll the parked, set aside who awaits output, end the rejected."""
    if books.hooks.is_ready is not NOTHING:
        for request in books.waiting.parked:
            _poll(books, request)
    for request in books.awaiting:
        books.waiting.set_aside(request)
    rejected = books.hooks.pick_rejected(books.waiting, plan.view)
    if rejected:
        what = "requests of the waiting queue"
        chosen = answers.distinct(books.hooks, "pick_rejected", rejected, books.waiting, what)
        for request in chosen:
            plan.num_rejected += 1
            places.refuse(books, request, Status.FINISHED_REJECTED, "shed by pick_rejected")


def order_running(books: Books, plan: StepPlan) -> Iterable[Request]:
    """The running requests that may get tokens, in order."""
    order = books.hooks.order_running(books.running, plan.view)
    if order is None:
        return tuple(books.running)
    what = "running requests"
    return answers.distinct(books.hooks, "order_running", order, set(books.running), what)


def _poll(books: Books, request: Request) -> None:
    try:
        ready = books.hooks.is_ready(request)
    except RequestError as error:
        places.refuse(books, request, Status.FINISHED_ERROR, str(error))
    else:
        if ready is not False:
            books.waiting.unpark(request)
