"""What a request came to, and the live record it grows from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from attrs import define, field, frozen

from framework.engine.detokenize import TextStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.engine.tokenizer import Tokenizer
    from framework.metrics import Timeline
    from framework.output import StepResult, TokenLogprobs
    from framework.request import Request


@frozen(kw_only=True)
class Completion:
    """One finished request.

    Attributes:
        request_id: its name.
        text: the output, cut before a stop string; empty if there is no tokenizer.
        token_ids: the output tokens, up to the one that completed a stop string.
        finish_reason: "stop", "length", "abort", "rejected" or "error".
        stop_reason: the stop string or stop token that ended it, or None.
        num_prompt_tokens: length of the prompt.
        num_preemptions: how often it lost its place.
        num_cached_tokens: prompt tokens that its first admission got for nothing.
        timings: when things happened, on the scheduler's clock.
        logprobs: one entry a token, if asked for.
        text_offsets: where in `text` each token begins; empty without a tokenizer.
        error: why it was rejected or failed, or None.
        priority, tenant: as they came in.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: int | str | None
    num_prompt_tokens: int
    num_preemptions: int
    num_cached_tokens: int
    timings: Timeline
    logprobs: tuple[TokenLogprobs, ...] | None = None
    text_offsets: tuple[int, ...] = ()
    error: str | None = None
    priority: int = 0
    tenant: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json` files."""
        return {
            "id": self.request_id,
            "text": self.text,
            "output_token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "stop_reason": self.stop_reason,
            "error": self.error,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_output_tokens": len(self.token_ids),
            "num_preemptions": self.num_preemptions,
            "num_cached_tokens": self.num_cached_tokens,
            "priority": self.priority,
            "tenant": self.tenant,
            **self.timings.as_dict(),
            "logprobs": [attrs.asdict(entry) for entry in self.logprobs or ()] or None,
        }


@frozen
class Piece:
    """What a request gave since the last piece.

    Attributes:
        text: new text; empty while a character or a possible stop string is incomplete.
        token_ids: new tokens.
        logprobs: one entry a new token, if asked for.
        finish_reason: of the last piece: "stop", "length", "abort", "rejected" or "error".
        stop_reason: the stop string or stop token, of the last piece.
        error: why it was rejected or failed, of the last piece.
        text_offsets: where in the whole text each new token begins; empty without a tokenizer.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    text_offsets: tuple[int, ...] = ()


@define(eq=False)
class LiveRequest:
    """A request on its way, as the front sees it.

    Attributes:
        request: the scheduler's record.
        timeline: when things happened.
        text: its text as it grows, or None without a tokenizer.
        completion: set once it has ended.
    """

    request: Request
    timeline: Timeline
    text: TextStream | None
    completion: Completion | None = None
    _token_ids: list[int] = field(factory=list)
    _logprobs: list[TokenLogprobs] = field(factory=list)
    _num_in_pieces: int = 0

    @classmethod
    def of(cls, request: Request, timeline: Timeline, tokenizer: Tokenizer | None) -> LiveRequest:
        """A request that has been accepted."""
        params = request.sampling_params
        text = None if tokenizer is None else TextStream(tokenizer, params.stop, params.min_tokens)
        return cls(request, timeline, text)

    @property
    def has_piece(self) -> bool:
        """Whether there is something to hand out."""
        return self.completion is not None or len(self._token_ids) > self._num_in_pieces

    def take_piece(self) -> Piece:
        """All that came since the last piece, however many steps it took."""
        start, self._num_in_pieces = self._num_in_pieces, len(self._token_ids)
        ended = self.completion
        return Piece(
            self.take_text(),
            tuple(self._token_ids[start:]),
            tuple(self._logprobs[start:]),
            None if ended is None else ended.finish_reason,
            None if ended is None else ended.stop_reason,
            None if ended is None else ended.error,
            self._offsets(start),
        )

    def _offsets(self, start: int) -> tuple[int, ...]:
        """Of the tokens from number `start` on; a text that was cut ends where it was cut."""
        if self.text is None:
            return ()
        most = len(self.text.text)
        return tuple(min(begin, most) for begin in self.text.starts[start : len(self._token_ids)])

    def take(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs], now: float) -> bool:
        """Take what a step gave; True if a stop string is complete, and the rest is left out."""
        stopped = False
        num_taken = 0
        for token_id in token_ids:
            num_taken += 1
            if self.text is not None and self.text.push(token_id):
                stopped = True
                break
        self._token_ids.extend(token_ids[:num_taken])
        self._logprobs.extend(logprobs[:num_taken])
        self.timeline.delivered(now, num_taken)
        return stopped

    def end(
        self, reason: str, stop_reason: int | str | None, error: str | None, now: float
    ) -> None:
        """Close the books of this request."""
        self.timeline.finish = now
        if self.text is not None and self.text.close() and reason in ("length", "stop"):
            reason, stop_reason = "stop", self.text.stopped_by
        wants_logprobs = self.request.sampling_params.logprobs is not None
        self.completion = Completion(
            request_id=self.request.request_id,
            text="" if self.text is None else self.text.text,
            token_ids=tuple(self._token_ids),
            finish_reason=reason,
            stop_reason=stop_reason,
            num_prompt_tokens=self.request.num_prompt_tokens,
            num_preemptions=self.timeline.num_preemptions,
            num_cached_tokens=self.timeline.num_cached_tokens,
            timings=self.timeline,
            logprobs=tuple(self._logprobs) if wants_logprobs else None,
            text_offsets=self._offsets(0),
            error=error,
            priority=self.request.priority,
            tenant=self.request.tenant,
        )

    def end_as(self, result: StepResult, now: float) -> None:
        """End as the step's result says."""
        name = self.request.request_id
        self.end(
            result.finish_reasons[name],
            result.stop_reasons.get(name),
            result.errors.get(name),
            now,
        )

    def take_text(self) -> str:
        """Text that is safe to show and was not taken before."""
        if self.text is None:
            return ""
        return self.text.take(final=self.completion is not None)
