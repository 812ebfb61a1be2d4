"""Requests that tell who writes to them, and who asks them for what nobody knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from framework.hookspecs import KIND_OF, OwnBlocks
from framework.request import Request

if TYPE_CHECKING:
    from framework.testing.proxies import Watch

UNKNOWABLE: Final = re.compile(
    r"(true|real|actual|final|total|expected|max|target|num)?_*"
    r"(output|response|answer|completion|decode|generation|remaining)s?_*(token)?s?_*"
    r"(len|length|lengths|tokens|left|size)"
)
"""Names under which a policy might look for a request's true output length."""


class GuardedRequest(Request):
    """A request that tells the watch who writes to it and who asks for its true length."""

    __slots__ = ("watch",)

    watch: Watch | None

    def __setattr__(self, name: str, value: Any) -> None:
        watch = getattr(self, "watch", None)
        inside = watch and watch.inside
        if inside and not (name == "num_slots" and KIND_OF.get(inside[1]) is OwnBlocks):
            raise cast("Watch", watch).misused(
                f"the hook wrote to {name!r} of request {self.request_id!r}; allowed: "
                "`request.stash` and the plugin's own books"
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Called for what a request has not: some names are those of a peeping policy."""
        watch = None if name == "watch" else getattr(self, "watch", None)
        if watch is not None and UNKNOWABLE.fullmatch(name):
            raise watch.misused(
                f"the hook asked request {self.request_id!r} for {name!r}; how long an output "
                "gets nobody knows: ask `step.predict(request)`"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def guarded(request: Request, watch: Watch) -> Request:
    """A copy of a request that was not added yet, guarded."""
    fields = [each.name for each in attrs.fields(Request) if each.init]
    copy = GuardedRequest(**{name: getattr(request, name) for name in fields})
    copy.watch = watch
    return copy
