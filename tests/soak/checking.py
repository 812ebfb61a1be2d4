"""What came of a call, and whether it is what it had to be: complete, once, and right."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.soak.offline import Expected

DONE = "[DONE]"


@frozen
class Fault:
    """Something that must not be: kind "lost", "duplicated" or "wrong", and a sentence."""

    kind: str
    told: str


@define(eq=False)
class Transcript:
    """An answer as it was received, streamed or whole.

    Attributes:
        texts: of each choice.
        ends: the finish reasons that each choice was given.
        num_done: how often the stream said that it is over.
        num_late: events after that, and text after a choice's end.
        num_tokens: of all choices, as told, or None.
        error: an error in place of an answer.
    """

    texts: defaultdict[int, str] = field(factory=lambda: defaultdict(str))
    ends: defaultdict[int, list[str]] = field(factory=lambda: defaultdict(list))
    num_done: int = 0
    num_late: int = 0
    num_tokens: int | None = None
    error: str | None = None

    def take_event(self, event: bytes) -> None:
        """One event of a stream."""
        data = event.decode().removeprefix("data: ").strip()
        if self.num_done:
            self.num_late += 1
        if data == DONE:
            self.num_done += 1
        else:
            self.take_json(json.loads(data))

    def take_whole(self, body: bytes) -> None:
        """An answer that is no stream."""
        self.take_json(json.loads(body))
        self.num_done = 1

    def take_json(self, told: dict[str, Any]) -> None:
        """A chunk, or all of it."""
        if "error" in told:
            self.error = told["error"]["message"]
            return
        for choice in told["choices"]:
            index = choice["index"]
            content = choice.get("delta") or choice.get("message") or {}
            text = choice.get("text") or content.get("content") or ""
            self.num_late += bool(text and self.ends[index])
            self.texts[index] += text
            if choice["finish_reason"] is not None:
                self.ends[index].append(choice["finish_reason"])
        if told.get("usage"):
            self.num_tokens = told["usage"]["completion_tokens"]


def fault_of(got: Transcript, expected: Sequence[Expected]) -> Fault | None:
    """What is not as it had to be."""
    if got.error is not None:
        return Fault("lost", f"an error came instead: {got.error}")
    if got.num_done > 1 or got.num_late or any(len(each) > 1 for each in got.ends.values()):
        return Fault("duplicated", f"{got.num_done} ends, {got.num_late} late, {dict(got.ends)}")
    num_ended = sum(map(bool, got.ends.values()))
    if not got.num_done or num_ended != len(expected):
        return Fault("lost", f"{num_ended} of {len(expected)} choices ended, {got.num_done} ends")
    for index, wanted in enumerate(expected):
        fault = _choice_fault(got.texts[index], got.ends[index], wanted)
        if fault is not None:
            return fault
    counts = [wanted.num_tokens for wanted in expected]
    known = [count for count in counts if count is not None]
    if got.num_tokens is not None and len(known) == len(counts) and sum(known) != got.num_tokens:
        return Fault("wrong", f"{got.num_tokens} tokens were told, {sum(known)} is right")
    return None


def _choice_fault(text: str, ends: list[str], wanted: Expected) -> Fault | None:
    told = f"got {text!r} ({ends[0]}), expected {wanted.text!r} ({wanted.finish_reason})"
    if text == wanted.text:
        return None if ends == [wanted.finish_reason] else Fault("wrong", told)
    if text.startswith(wanted.text):
        return Fault("duplicated", told)
    return Fault("lost" if wanted.text.startswith(text) else "wrong", told)
