"""Another stack under way: what the unfinished requests become in the books of a new one.

    old books                             new books, nothing computed, nobody running
    running, paused        ------->       waiting, as preempted (the runner still knows them)
    waiting, loaded        ------->       waiting
    counters, events, what is still
    to be told, step numbers ----->       the same

Until `_hand_on` only the requests are changed, and a failure puts them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import attrs

from framework.arrival import limit_length
from framework.books import Books, Event
from framework.errors import HeadwayError, PluginError, RequestError
from framework.hooks import NOTHING
from framework.request import UNLIMITED, PreemptMode, Request, Status
from framework.stack import plugin_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from framework.stash import StashKey


@runtime_checkable
class Lasting(Protocol):
    """A plugin of which one instance may be in the old stack and in the new one.

    Attributes:
        stash_keys: what it stores on requests under these keys stays there.
    """

    stash_keys: Sequence[StashKey[Any]]

    def swapped(self, preempted: Sequence[Request], now: float) -> None:
        """Hear, when all is done, who lost its place by the swap, and when."""


_FIELDS = tuple(field.name for field in attrs.fields(Request))


def has_transfers(books: Books) -> bool:
    """True while external KV is read from blocks, or written to them."""
    is_loading = books.holders.num_all > len(books.landed)
    return bool(books.held or books.aborted_loads or is_loading)


def check_quiet(books: Books) -> None:
    """Refuse a swap while a step or a transfer still works on blocks of the old owner."""
    if books.in_flight:
        raise HeadwayError(
            f"swap with {len(books.in_flight)} steps in flight; apply their results first"
        )
    if has_transfers(books):
        raise HeadwayError(
            "swap while transfers of external KV still use blocks of the old stack; "
            "run further steps until `has_transfers` is False"
        )


def find_lasting(old: Iterable[object], plugins: Iterable[object]) -> list[Lasting]:
    """The instances that stay. Another one of the old stack is refused: a failed swap could not
    give it back as it was."""
    serving = {id(plugin) for plugin in old}
    both = [plugin for plugin in plugins if id(plugin) in serving]
    for plugin in both:
        if not isinstance(plugin, Lasting):
            raise PluginError(
                f"plugin {plugin_name(plugin)!r} is in the stack that it would replace; "
                "a swap takes new instances"
            )
    return [plugin for plugin in both if isinstance(plugin, Lasting)]


def carry_over(old: Books, new: Books, names: Sequence[str], lasting: Sequence[Lasting]) -> None:
    """Everyone unfinished moves into the new books, and the new plugins hear of each.

    Raises:
        PluginError: the new stack cannot serve a request.
        Exception: what a new plugin raised. In both cases nothing has changed.
    """
    everyone = [*old.running, *old.holders.everyone(), *old.waiting.everyone()]
    before = [[getattr(request, name) for name in _FIELDS] for request in everyone]
    keys = [key for plugin in lasting for key in plugin.stash_keys]
    try:
        for request in everyone:
            _unseat(request, new, keys)
        _enter_all(new, everyone)
    except Exception as error:
        for request, values in zip(everyone, before, strict=True):
            for name, value in zip(_FIELDS, values, strict=True):
                setattr(request, name, value)
        if isinstance(error, RequestError):
            why = f"the new stack refuses a request that is under way: {error}"
            raise PluginError(why) from error
        raise
    computed = _FIELDS.index("num_computed_tokens")
    num_lost = {
        request: values[computed]
        for request, values in zip(everyone, before, strict=True)
        if request not in old.holders
    }
    _hand_on(old, new, names, num_lost)
    for plugin in lasting:
        plugin.swapped(old.running, new.clock.now())


def _unseat(request: Request, new: Books, keys: Collection[StashKey[Any]]) -> None:
    """Nothing of it is computed any more; if it ran, it has lost its place."""
    if request.status in (Status.RUNNING, Status.PAUSED):
        computed = request.num_computed_tokens
        request.num_once_computed = max(request.num_once_computed, computed)
    request.num_preemptions += request.status is Status.RUNNING
    request.status = Status.PREEMPTED if request.num_preemptions else Status.WAITING
    request.num_computed_tokens = 0
    request.num_slots = UNLIMITED if new.kv is None else 0
    request.set_drafts([])
    request.set_placeholders(0)
    request.is_prefill_chunk = False
    request.stash = request.stash.only(keys)


def _enter_all(new: Books, everyone: Sequence[Request]) -> None:
    """Those who ran are asked about last first, as victims leave, so that a policy which puts
    each victim at the head keeps their order; equal keys keep it too."""
    ran = [request for request in everyone if request.status is Status.PREEMPTED]
    for number in range(len(ran), 0, -1):
        _enter(new, ran[number - 1], number)
    for request in everyone:
        if request.status is Status.WAITING:
            _enter(new, request, None)


def _enter(new: Books, request: Request, number: int | None) -> None:
    _check_fits(new, request)
    new.hooks.request_arrived(request, new.waiting)
    key, entry = new.waiting.rank_of(request, request.status)
    new.requests[request.request_id] = request
    new.waiting.put_back(request, (key, number or entry))
    if new.hooks.is_ready is not NOTHING:
        new.waiting.park(request)


def _check_fits(new: Books, request: Request) -> None:
    limit_length(new, request)
    kv, num_tokens = new.kv, request.num_tokens
    if kv is not None and kv.num_blocks_needed(num_tokens) > kv.num_total_blocks:
        raise RequestError(
            f"request {request.request_id!r} can never fit: its {num_tokens} tokens need "
            f"{kv.num_blocks_needed(num_tokens)} KV blocks, the pool has {kv.num_total_blocks}"
        )


def _hand_on(old: Books, new: Books, names: Sequence[str], num_lost: dict[Request, int]) -> None:
    """The books go on."""
    new.counters, new.events = old.counters, old.events
    new.num_steps = old.num_steps
    new.finished_ids, new.refused = old.finished_ids, old.refused
    new.lost_untold = [*old.lost_untold, *(request.request_id for request in old.running)]
    new.free_encoder_ids, new.drop_kept = old.free_encoder_ids, True
    new.counters.num_preemptions += len(old.running)
    new.counters.num_lost_tokens += sum(num_lost.values())
    new.events.append(Event(new.clock.now(), new.num_steps, "swapped", "", tuple(names)))
    for request in old.running:
        new.note("preempted", request, PreemptMode.RECOMPUTE.value)
