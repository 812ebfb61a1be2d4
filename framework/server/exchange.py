"""Exchange: the answer to one call, as a whole or as events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from attrs import define, field

from framework.server.schema import StreamOptions
from framework.server.watch import encode_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from framework.server.job import Job
    from framework.server.shapes import Shape


@define(eq=False, kw_only=True)
class Exchange:
    """What is known of one call while it is answered.

    Attributes:
        answer_id: the `id` of the answer and of each chunk.
        model: the name that the client used.
        job: what runs.
        shape: how the answer looks.
        num_choices: choices a source.
        options: how a stream tells its usage.
    """

    answer_id: str
    model: str
    job: Job
    shape: Shape
    num_choices: int
    options: StreamOptions = field(factory=StreamOptions)
    created: int = field(factory=lambda: int(time.time()), init=False)

    async def whole(self) -> dict[str, Any]:
        """The answer, once all of it is there.

        Raises:
            ApiError, EngineDeadError: a choice failed.
        """
        async for _ in self.job.pieces():
            pass
        choices = [self.shape.choice(*each) for each in enumerate(self.job.completions)]
        return {**self._head(self.shape.whole_name), "choices": choices, "usage": self._usage()}

    async def events(self) -> AsyncIterator[bytes]:
        """The answer as events, the last one included.

        Raises:
            ApiError, EngineDeadError: a choice failed.
        """
        head = self._head(self.shape.chunk_name)
        opened: set[int] = set()
        async for index, piece in self.job.pieces():
            if index not in opened:
                opened.add(index)
                opening = self.shape.opening(index)
                if opening is not None:
                    yield self._event(head, opening)
            yield self._event(head, self.shape.delta(index, piece))
        if self.options.include_usage:
            yield encode_event({**head, "choices": [], "usage": self._usage()})
        yield b"data: [DONE]\n\n"

    def _event(self, head: dict[str, Any], choice: dict[str, Any]) -> bytes:
        chunk = {**head, "choices": [choice]}
        if self.options.continuous_usage_stats:
            chunk["usage"] = self._usage()
        elif self.options.include_usage:
            chunk["usage"] = None
        return encode_event(chunk)

    def _head(self, name: str) -> dict[str, Any]:
        return {
            "id": self.answer_id,
            "object": name,
            "created": self.created,
            "model": self.model,
        }

    def _usage(self) -> dict[str, Any]:
        num_prompt, num_output, num_cached = self.job.num_tokens(self.num_choices)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_output,
            "total_tokens": num_prompt + num_output,
            "prompt_tokens_details": {"cached_tokens": num_cached},
        }
