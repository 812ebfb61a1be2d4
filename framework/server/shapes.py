"""How completions and chat completions look: whole, and as chunks of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from attrs import define, field

from framework.server import logprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.engine.completion import Completion
    from framework.engine.tokenizer import Tokenizer
    from framework.server.faces import PieceLike


class Shape(Protocol):
    """One kind of call."""

    whole_name: str
    chunk_name: str

    def choice(self, index: int, completion: Completion) -> dict[str, Any]:
        """A finished choice."""

    def opening(self, index: int) -> dict[str, Any] | None:
        """What a choice begins with in a stream, before its first piece."""

    def delta(self, index: int, piece: PieceLike) -> dict[str, Any]:
        """A choice's next chunk."""


@define(eq=False)
class CompletionShape:
    """/v1/completions. `echoes` are the texts that choices begin with, one a source."""

    tokenizer: Tokenizer | None
    echoes: Sequence[str]
    num_choices: int
    num_logprobs: int | None
    whole_name: str = field(default="text_completion", init=False)
    chunk_name: str = field(default="text_completion", init=False)

    def choice(self, index: int, completion: Completion) -> dict[str, Any]:
        """A finished choice."""
        return {
            "index": index,
            "text": self.echoes[index // self.num_choices] + completion.text,
            "logprobs": self._logprobs(completion),
            "finish_reason": completion.finish_reason,
            "stop_reason": completion.stop_reason,
        }

    def opening(self, index: int) -> dict[str, Any] | None:
        """The prompt, if it is to be repeated."""
        echo = self.echoes[index // self.num_choices]
        if not echo:
            return None
        return {"index": index, "text": echo, "logprobs": None, "finish_reason": None}

    def delta(self, index: int, piece: PieceLike) -> dict[str, Any]:
        """A choice's next chunk."""
        return {
            "index": index,
            "text": piece.text,
            "logprobs": self._logprobs(piece),
            "finish_reason": piece.finish_reason,
            "stop_reason": piece.stop_reason,
        }

    def _logprobs(self, part: Completion | PieceLike) -> dict[str, Any] | None:
        if self.num_logprobs is None:
            return None
        entries = part.logprobs or ()
        return logprobs.for_completion(
            self.tokenizer, part.token_ids, entries, self.num_logprobs, part.text_offsets
        )


@define(eq=False)
class ChatShape:
    """/v1/chat/completions."""

    tokenizer: Tokenizer | None
    num_logprobs: int | None
    whole_name: str = field(default="chat.completion", init=False)
    chunk_name: str = field(default="chat.completion.chunk", init=False)

    def choice(self, index: int, completion: Completion) -> dict[str, Any]:
        """A finished choice."""
        return {
            "index": index,
            "message": {"role": ASSISTANT, "content": completion.text, "refusal": None},
            "logprobs": self._logprobs(completion),
            "finish_reason": completion.finish_reason,
            "stop_reason": completion.stop_reason,
        }

    def opening(self, index: int) -> dict[str, Any] | None:
        """Who speaks."""
        delta = {"role": ASSISTANT, "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(self, index: int, piece: PieceLike) -> dict[str, Any]:
        """A choice's next chunk."""
        return {
            "index": index,
            "delta": {"content": piece.text} if piece.text or not piece.finish_reason else {},
            "logprobs": self._logprobs(piece) if piece.token_ids else None,
            "finish_reason": piece.finish_reason,
            "stop_reason": piece.stop_reason,
        }

    def _logprobs(self, part: Completion | PieceLike) -> dict[str, Any] | None:
        if self.num_logprobs is None:
            return None
        entries = part.logprobs or ()
        return logprobs.for_chat(self.tokenizer, part.token_ids, entries, self.num_logprobs)


ASSISTANT: Final = "assistant"
