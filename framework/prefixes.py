"""Longest prefix first: an order of waiting requests that policies share.

Source of both limits: SGLang's scheduler (Zheng et al., "SGLang", NeurIPS 2024; Apache-2.0), which
does the same before each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework.protocols import KvView, WaitingView
    from framework.request import Request


def longest_prefix_first(
    waiting: WaitingView, kv: KvView | None, *, longest_queue: int, shared_tokens: int
) -> list[Request]:
    """The waiting requests, those first of which the cache holds most; ties as in the queue.

    Of requests that the cache hardly knows (at most `shared_tokens`) and that begin with
    `shared_tokens` more tokens in common, only the first keeps its place: the others go last, so
    that they come when it has filled the cache for them. 0 turns this off. In a queue of more than
    `longest_queue` nobody is looked up: the order is that of the queue.
    """
    requests = list(waiting)
    if kv is None or len(requests) > longest_queue:
        return requests
    seen: set[object] = set()
    ranks: dict[Request, int] = {}
    for request in requests:
        found = kv.peek_prefix(request)
        ranks[request] = -found
        if shared_tokens and found <= shared_tokens:
            start = tuple(request.all_token_ids[: found + shared_tokens])
            key = (request.adapter, request.cache_salt, start)
            if len(start) == found + shared_tokens and key in seen:
                ranks[request] = 1
            seen.add(key)
    return sorted(requests, key=ranks.__getitem__)
