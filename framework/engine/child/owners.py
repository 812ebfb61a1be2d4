"""Owners: whose each request of an engine is, and what each front is to be told of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import define, field

from framework.engine.protocol import Admitted, Ended, Logprobs, Outputs

if TYPE_CHECKING:
    from framework.metrics import Timeline
    from framework.output import StepResult


@define(eq=False)
class Owned:
    """Whose a request is, and what that front calls it."""

    peer: bytes
    key: int
    timeline: Timeline
    is_untold: bool = True
    """Its front has not heard of its admission."""

    def admitted(self) -> Admitted:
        """What its front is told with the first tokens."""
        self.is_untold = False
        line = self.timeline
        return Admitted(self.key, line.first_admission or line.arrival, line.num_cached_tokens)

    def ended(self, reason: str, stop_reason: int | str | None, error: str | None) -> Ended:
        """What its front is told at the end."""
        line = self.timeline
        return Ended(
            self.key,
            reason,
            stop_reason,
            error,
            line.first_admission,
            line.num_cached_tokens,
            line.num_preemptions,
            line.preempted_s,
        )


@define(eq=False)
class Owners:
    """The unfinished requests, by name and by the key of their front."""

    _owned: dict[str, Owned] = field(factory=dict)
    _names: dict[tuple[bytes, int], str] = field(factory=dict)

    def __len__(self) -> int:
        return len(self._owned)

    def __iter__(self) -> Iterator[str]:
        return iter(self._owned)

    def __contains__(self, name: object) -> bool:
        return name in self._owned

    def add(self, name: str, peer: bytes, key: int, timeline: Timeline) -> None:
        """A request is accepted."""
        self._owned[name] = Owned(peer, key, timeline)
        self._names[peer, key] = name

    def name(self, peer: bytes, key: int) -> str | None:
        """The request of this peer that has this key."""
        return self._names.get((peer, key))

    def of(self, peer: bytes) -> list[str]:
        """All requests of a peer."""
        return [name for (owner, _), name in self._names.items() if owner == peer]

    def forget(self, name: str) -> Owned | None:
        """It has ended; None if it is nobody's."""
        owned = self._owned.pop(name, None)
        if owned is not None:
            del self._names[owned.peer, owned.key]
        return owned

    def outputs(self, result: StepResult) -> dict[bytes, Outputs]:
        """What each peer's requests got; those that ended are forgotten."""
        messages: dict[bytes, Outputs] = {}
        owned_by = self._owned
        for name, token_ids in zip(result.req_ids, result.new_token_ids, strict=True):
            owned = owned_by.get(name)
            if owned is None:
                continue
            message = messages.get(owned.peer)
            if message is None:
                message = messages[owned.peer] = Outputs([], [])
            if owned.is_untold:
                message.admitted.append(owned.admitted())
            message.keys.append(owned.key)
            message.token_ids.append(list(token_ids))
            if found := result.logprobs.get(name):
                message.logprobs[owned.key] = [
                    Logprobs(one.logprob, one.rank, dict(one.top)) for one in found
                ]
        for name, reason in result.finish_reasons.items():
            owned = self.forget(name)
            if owned is not None:
                stop_reason, error = result.stop_reasons.get(name), result.errors.get(name)
                message = messages.setdefault(owned.peer, Outputs([], []))
                message.ended.append(owned.ended(reason, stop_reason, error))
        return messages
