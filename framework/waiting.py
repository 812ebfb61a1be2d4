"""The waiting queue: sorted by the key of the order's owner, ties in order of entry.

Requests that cannot be looked at for now (set aside for a step, or parked until ready) leave the
view that policies get and keep their rank.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, TypeAlias

from framework.errors import PolicyError
from framework.request import Request, Status

Rank: TypeAlias = tuple[Any, int]
KeyFunction: TypeAlias = Callable[[Request], Any]

_COMPACT_AT = 64


def entry_order() -> KeyFunction:
    """The default key: order of entry, a preempted request before all others."""
    ahead = count(-1, -1)

    def key(request: Request) -> int:
        return next(ahead) if request.status is Status.PREEMPTED else 0

    return key


class WaitingQueue:
    """A sorted list with a moving head, so that both ends cost O(1) and the middle a memmove."""

    __slots__ = (
        "_aside",
        "_entries",
        "_head",
        "_key_of",
        "_next_entry",
        "_owner",
        "_parked",
        "_ranks",
    )

    def __init__(self, key_of: KeyFunction, owner: str = "the default order") -> None:
        self._key_of = key_of
        self._owner = owner
        self._entries: list[Any] = []  # (key, entry number, request); None before the head
        self._head = 0
        self._next_entry = 0
        self._ranks: dict[Request, Rank] = {}
        self._aside: dict[Request, Rank] = {}
        self._parked: dict[Request, Rank] = {}

    def __len__(self) -> int:
        return len(self._entries) - self._head

    def __bool__(self) -> bool:
        return len(self._entries) > self._head

    def __iter__(self) -> Iterator[Request]:
        return (entry[2] for entry in islice(self._entries, self._head, None))

    def __getitem__(self, index: int) -> Request:
        if not -len(self) <= index < len(self):
            raise IndexError(f"waiting[{index}]: the queue has {len(self)} requests")
        request: Request = self._entries[index + self._head if index >= 0 else index][2]
        return request

    def __contains__(self, request: object) -> bool:
        return request in self._ranks

    @property
    def num_all(self) -> int:
        """Requests in view, set aside and parked."""
        return len(self) + len(self._aside) + len(self._parked)

    @property
    def parked(self) -> list[Request]:
        """Requests that are not ready to start, in order of parking."""
        return list(self._parked)

    def everyone(self) -> list[Request]:
        """All waiting requests in order, whether in view or not."""
        ranks = self._ranks | self._aside | self._parked
        return sorted(ranks, key=ranks.__getitem__)

    def rank_of(self, request: Request, status: Status) -> Rank:
        """Ask for the place of a request that is about to enter with this status.

        The order's owner may fail, so callers ask before they change anything.
        """
        before, request.status = request.status, status
        try:
            key = self._checked_key(request)
        finally:
            request.status = before
        self._next_entry += 1
        return (key, self._next_entry)

    def take(self, request: Request) -> Rank:
        """Remove a request from the view; returns its rank for `put_back`."""
        rank = self._ranks.pop(request)
        entries, head = self._entries, self._head
        index = bisect_left(entries, rank, lo=head)
        if index > head:
            del entries[index]
        else:
            entries[head] = None
            self._head = head + 1
            if head > _COMPACT_AT and head * 2 > len(entries):
                del entries[: self._head]
                self._head = 0
        return rank

    def put_back(self, request: Request, rank: Rank) -> None:
        """Put a request at a rank, as `rank_of` or `take` gave it."""
        self._insert(request, rank)

    def remove(self, request: Request) -> bool:
        """Forget a request wherever it waits; False if it does not wait here."""
        if request in self._ranks:
            self.take(request)
            return True
        return (
            self._aside.pop(request, None) is not None
            or self._parked.pop(request, None) is not None
        )

    def set_aside(self, request: Request) -> None:
        """Hide a request until the end of the step."""
        self._aside[request] = self.take(request)

    def restore(self) -> None:
        """End of the step: everyone set aside is back in place."""
        for request, rank in self._aside.items():
            self._insert(request, rank)
        self._aside.clear()

    def park(self, request: Request) -> None:
        """Hide a request until it is ready."""
        self._parked[request] = self.take(request)

    def unpark(self, request: Request) -> None:
        """A parked request is ready: back in view with the rank it came with."""
        self._insert(request, self._parked.pop(request))

    def rekey(self, request: Request) -> None:
        """Ask the order's owner for a new key; the entry number stays."""
        for ranks in (self._aside, self._parked):
            if request in ranks:
                ranks[request] = (self._checked_key(request), ranks[request][1])
                return
        if request in self._ranks:
            rank = (self._checked_key(request), self._ranks[request][1])
            self.take(request)
            self._insert(request, rank)

    def _checked_key(self, request: Request) -> Any:
        """The owner's key; it must compare with those that are here."""
        key = self._key_of(request)
        ranks = self._ranks or self._aside or self._parked
        other = next(iter(ranks.values()))[0] if ranks else key
        try:
            sorted([(key,), (other,)])
        except TypeError as error:
            raise PolicyError(
                plugin=self._owner,
                hook="order_waiting",
                got=f"answered {key!r}",
                allowed=f"a key that compares with {other!r}, which another request has",
                request_id=request.request_id,
            ) from error
        return key

    def _insert(self, request: Request, rank: Rank) -> None:
        entry = (*rank, request)
        entries, head = self._entries, self._head
        if len(entries) == head or entries[-1] < entry:
            entries.append(entry)
        elif head and entry < entries[head]:
            self._head = head - 1
            entries[head - 1] = entry
        else:
            insort(entries, entry, lo=head)
        self._ranks[request] = rank
