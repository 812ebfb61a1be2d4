"""What a stream has to be: the same request without server, process or company."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, frozen

from framework.engine.llm import LLM
from framework.engine.prompts import Prompt
from framework.sampling import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from framework.engine.tokenizer import Tokenizer

MOST_TOKENS = 48
"""Of an answer of the real model."""


@frozen(kw_only=True)
class Wish:
    """What decides an output, besides its request id.

    Attributes:
        source: the fields of a body that say the prompt, and where it is sent: `prompt` or
            `messages`.
        max_tokens, stop, ignore_eos: as they are sent.
    """

    source: dict[str, Any]
    max_tokens: int
    stop: str | None = None
    ignore_eos: bool = True


@frozen(kw_only=True)
class Expected:
    """One choice as it has to be; `num_tokens` is not known where a stop string ends it."""

    text: str
    finish_reason: str
    num_tokens: int | None


class Tokens(Protocol):
    """Where the tokens of an output are known from."""

    def of(self, request_id: str, source: dict[str, Any], count: int) -> Sequence[int]:
        """The first tokens of an output that nothing ends."""


@define(eq=False)
class ScriptedTokens:
    """Tokens that follow from the request id."""

    _runner: Any

    def of(self, request_id: str, source: dict[str, Any], count: int) -> list[int]:
        """The first tokens."""
        return [self._runner.tokens(request_id, index) for index in range(count)]


@define(eq=False)
class KnownTokens:
    """Tokens that were computed before, by source."""

    _known: Mapping[str, Sequence[int]]

    @classmethod
    def computed(cls, llm: LLM, sources: Sequence[dict[str, Any]]) -> KnownTokens:
        """Ask the model, one prompt at a time."""
        params = SamplingParams(max_tokens=MOST_TOKENS, temperature=0, ignore_eos=True)
        known = {}
        for source in sources:
            [done] = llm.generate([Prompt(**source, sampling_params=params)])
            known[json.dumps(source)] = done.token_ids
        return cls(known)

    def of(self, request_id: str, source: dict[str, Any], count: int) -> Sequence[int]:
        """The first tokens."""
        return self._known[json.dumps(source)][:count]


@define(eq=False)
class Offline:
    """Outputs from tokens: cut by hand, so that the way the engine does it is put to the test."""

    tokens: Tokens
    tokenizer: Tokenizer
    eos_token_ids: Collection[int]

    @classmethod
    def open(cls, runner: str, sources: Sequence[dict[str, Any]]) -> Offline:
        """For a runner of `headway serve`, by name."""
        with LLM("smollm2", runner=runner, num_blocks=64) as llm:
            model = llm.model
            assert model.tokenizer is not None
            if runner == "scripted":
                tokens: Tokens = ScriptedTokens(model.runner)
            else:
                tokens = KnownTokens.computed(llm, sources)
            return cls(tokens, model.tokenizer, model.eos_token_ids)

    def expected(self, request_id: str, wish: Wish) -> Expected:
        """The output of one request."""
        token_ids = list(self.tokens.of(request_id, wish.source, wish.max_tokens))
        reason = "length"
        ends = [at for at, one in enumerate(token_ids) if one in self.eos_token_ids]
        if ends and not wish.ignore_eos:
            token_ids, reason = token_ids[: ends[0] + 1], "stop"
        text = self.tokenizer.decode(token_ids)
        if wish.stop is not None and wish.stop in text:
            return Expected(
                text=text[: text.index(wish.stop)], finish_reason="stop", num_tokens=None
            )
        return Expected(text=text, finish_reason=reason, num_tokens=len(token_ids))
