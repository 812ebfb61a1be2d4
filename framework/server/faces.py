"""What the server needs of an engine. `AsyncEngine` has it; tests bring a scripted one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from framework.engine.completion import Completion
    from framework.engine.prompts import Prompt
    from framework.engine.tokenizer import Tokenizer
    from framework.output import TokenLogprobs


class PieceLike(Protocol):
    """What came of a request since the last piece; the last one has a finish reason."""

    @property
    def text(self) -> str:
        """Text that is safe to show."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The tokens, also those whose text is held back."""

    @property
    def logprobs(self) -> Sequence[TokenLogprobs]:
        """One entry a token, if asked for."""

    @property
    def text_offsets(self) -> Sequence[int]:
        """Where in the whole text each token begins."""

    @property
    def finish_reason(self) -> str | None:
        """Why it ended, or None."""

    @property
    def stop_reason(self) -> int | str | None:
        """What ended it."""

    @property
    def error(self) -> str | None:
        """A sentence, if it was refused or failed."""


class StreamLike(Protocol):
    """One request on its way."""

    @property
    def request_id(self) -> str:
        """Its name."""

    @property
    def num_prompt_tokens(self) -> int:
        """Length of its prompt."""

    @property
    def completion(self) -> Completion | None:
        """What it came to, once it has ended."""

    def __aiter__(self) -> AsyncIterator[PieceLike]:
        """Its pieces as they come."""

    async def aclose(self) -> None:
        """Abort it if it has not ended."""


class StatsLike(Protocol):
    """How an engine stands."""

    @property
    def num_running(self) -> int:
        """Requests with a place."""

    @property
    def num_waiting(self) -> int:
        """Requests without one."""

    @property
    def kv_usage(self) -> float | None:
        """Share of the KV blocks in use, or None if nobody owns blocks."""

    @property
    def is_paused(self) -> bool:
        """Whether it makes no steps."""

    @property
    def counters(self) -> Mapping[str, Any]:
        """The fields of `framework.books.Counters`."""

    @property
    def hooks(self) -> Sequence[tuple[str, str, int, float]]:
        """(plugin, hook, calls, seconds) of each implementation."""


class EngineInfoLike(Protocol):
    """What an engine serves."""

    @property
    def max_model_len(self) -> int:
        """Most tokens of a request, as the model has it."""

    @property
    def num_blocks(self) -> int:
        """Size of the KV pool."""

    @property
    def block_size(self) -> int:
        """Tokens of a block."""


class EngineLike(Protocol):
    """An engine that answers many requests at once."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Text to tokens and back."""

    @property
    def info(self) -> EngineInfoLike:
        """What it serves."""

    @property
    def is_alive(self) -> bool:
        """Whether it can take requests."""

    @property
    def failure(self) -> str | None:
        """Why it cannot."""

    @property
    def silence_s(self) -> float:
        """Seconds since it was last heard."""

    async def submit(self, prompt: Prompt) -> StreamLike:
        """Accept a prompt.

        Raises:
            RequestError: it is refused.
            EngineDeadError: nobody is there.
        """

    async def abort(self, request_id: str) -> bool:
        """End a request; its reader gets a last piece with the reason "abort"."""

    async def stats(self) -> StatsLike:
        """How it stands."""

    async def pause(self) -> None:
        """Make no further step."""

    async def resume(self) -> None:
        """Make steps again."""

    async def reset_prefix_cache(self) -> bool:
        """Forget what the prefix cache holds; False if it is in use."""

    async def plugins(self) -> Sequence[str]:
        """Names of the stack."""

    async def swap(self, specs: list[str]) -> Sequence[str]:
        """Put another stack in place.

        Raises:
            PluginError: it fails its check, and the old one stays.
        """
