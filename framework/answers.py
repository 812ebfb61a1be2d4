"""Check what hooks answered. A wrong answer is a PolicyError that names who, what and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framework.errors import PolicyError
from framework.protocols import HOLD, NO_HIT, ExternalHit, Hit
from framework.request import PreemptMode, Request

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from framework.hooks import Hooks


def wrong(hooks: Hooks, hook: str, got: Any, allowed: str, request: Request | None) -> PolicyError:
    """The error for an answer that the core cannot use."""
    return PolicyError(
        plugin=hooks.blame(hook),
        hook=hook,
        got=f"answered {got!r}",
        allowed=allowed,
        request_id=request.request_id if request else None,
    )


def whole(hooks: Hooks, hook: str, got: Any, request: Request) -> int:
    """An int of at least 0."""
    if type(got) is not int or got < 0:
        raise wrong(hooks, hook, got, "an int of at least 0, or None", request)
    return got


def one_of(
    hooks: Hooks, hook: str, got: Any, candidates: Container[Request], request: Request | None
) -> Request | None:
    """One of the candidates, or None for HOLD."""
    if got is HOLD:
        return None
    if not isinstance(got, Request) or got not in candidates:
        raise wrong(hooks, hook, got, "one of the candidates, HOLD, or None", request)
    return got


def distinct(
    hooks: Hooks, hook: str, got: Iterable[Any], allowed: Container[Request], what: str
) -> list[Request]:
    """Requests out of `allowed`, each at most once."""
    chosen = list(got)
    for request in chosen:
        if not isinstance(request, Request) or request not in allowed:
            raise wrong(hooks, hook, request, what, None)
    if len(set(chosen)) != len(chosen):
        raise wrong(hooks, hook, chosen, f"{what}, each at most once", None)
    return chosen


def mode(hooks: Hooks, got: Any, *, displaced: bool, request: Request) -> PreemptMode:
    """A preempt mode that is possible here."""
    if got is None:
        return PreemptMode.RECOMPUTE
    if not isinstance(got, PreemptMode):
        raise wrong(hooks, "preempt_mode", got, "a PreemptMode, or None", request)
    if got is PreemptMode.KEEP and not displaced:
        allowed = "RECOMPUTE or SWAP when blocks ran out (KEEP frees none)"
        raise wrong(hooks, "preempt_mode", got, allowed, request)
    return got


def local_hit(hooks: Hooks, got: Any, request: Request) -> Hit:
    """A Hit that leaves at least one token to compute."""
    if got is None:
        return NO_HIT
    if not isinstance(got, Hit) or not 0 <= got.num_local_tokens < request.num_tokens:
        allowed = f"a Hit of 0 to {request.num_tokens - 1} local tokens, or None"
        raise wrong(hooks, "match_prefix", got, allowed, request)
    return got


def external_hit(hooks: Hooks, got: Any, request: Request, local: Hit) -> Hit:
    """The local hit with the external one added."""
    if got is None:
        return local
    if not isinstance(got, ExternalHit):
        raise wrong(hooks, "lookup_external", got, "an ExternalHit, LATER, or None", request)
    room = request.num_tokens - local.num_local_tokens - (0 if got.is_async else 1)
    if not 0 <= got.num_tokens <= max(room, 0):
        allowed = f"0 to {room} external tokens after {local.num_local_tokens} local ones"
        raise wrong(hooks, "lookup_external", got, allowed, request)
    is_async = got.is_async and got.num_tokens > 0
    return Hit(local.num_local_tokens, got.num_tokens, is_async, local.blocks)


def drafts(hooks: Hooks, got: Sequence[Any], at_most: int, request: Request) -> list[int]:
    """Draft token ids, trimmed to what was asked for."""
    proposed = list(got[:at_most])
    if not all(type(token) is int and token >= 0 for token in proposed):
        raise wrong(hooks, "propose_drafts", got, "token ids (ints of at least 0)", request)
    return proposed
