"""SamplingParams: how a runner draws tokens and when a request stops. Values only."""

from __future__ import annotations

from math import isfinite
from typing import Any

import attrs
from attrs import field, frozen

from framework.errors import ConfigError, bad_field

MOST_STOP_STRINGS = 64
MOST_STOP_CHARACTERS = 16_384
"""In all stop strings of a request together."""
_Check = Any


def _number(low: float, high: float, *, allowed: str, open_low: bool = False) -> _Check:
    def check(_: object, attribute: attrs.Attribute[float], value: Any) -> None:
        ok = isinstance(value, int | float) and type(value) is not bool and isfinite(value)
        if not ok or not (low < value if open_low else low <= value) or value > high:
            raise bad_field(attribute.name, value, allowed)

    return check


def _whole(low: int, *, allowed: str) -> _Check:
    def check(_: object, attribute: attrs.Attribute[int], value: Any) -> None:
        if value is not None and (type(value) is not int or value < low):
            raise bad_field(attribute.name, value, allowed)

    return check


def _as_strings(stop: Any) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _strings(_: object, attribute: attrs.Attribute[Any], value: tuple[Any, ...]) -> None:
    if not all(isinstance(text, str) and text for text in value):
        raise bad_field(attribute.name, value, "non-empty strings")
    if len(value) > MOST_STOP_STRINGS:
        raise bad_field(attribute.name, f"{len(value)} strings", f"at most {MOST_STOP_STRINGS}")
    length = sum(map(len, value))
    if length > MOST_STOP_CHARACTERS:
        raise ConfigError(
            f"{attribute.name}: got {length} characters, "
            f"allowed: at most {MOST_STOP_CHARACTERS} in all"
        )


def _token_ids(_: object, attribute: attrs.Attribute[Any], value: tuple[Any, ...]) -> None:
    if not all(type(token) is int and token >= 0 for token in value):
        raise bad_field(attribute.name, value, "token ids (ints of at least 0)")


def _a_bool(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not bool:
        raise bad_field(attribute.name, value, "True or False")


@frozen(kw_only=True)
class SamplingParams:
    """How to sample and when to stop (vLLM's names and meanings).

    Attributes:
        max_tokens: most output tokens; None = as many as the model length and the pool allow.
        min_tokens: stop tokens are neither sampled nor obeyed before so many outputs.
        temperature: 0 = greedy, else logits are divided by it.
        top_k: keep the k most likely tokens; 0 = all.
        top_p: keep the smallest set of tokens whose probabilities reach it, in (0, 1].
        min_p: keep tokens of at least min_p times the most likely one's probability, in [0, 1].
        presence_penalty, frequency_penalty: in [-2, 2], over the output tokens.
        repetition_penalty: > 0, over prompt and output tokens; 1 = none.
        seed: the request's own random stream; None = one derived from the runner's seed.
        logprobs: report so many most likely tokens with each output token; None = none.
        stop: strings that end the output (handled by the front end, which has the text); at most
            64 of them, with at most 16,384 characters in all.
        stop_token_ids: tokens that end the output; the token itself is kept.
        ignore_eos: go on past the model's end-of-sequence token.
    """

    max_tokens: int | None = field(
        default=None, validator=_whole(1, allowed="an int of at least 1, or None")
    )
    min_tokens: int = field(default=0, validator=_whole(0, allowed="an int of at least 0"))
    temperature: float = field(
        default=1.0, validator=_number(0, 1e6, allowed="a finite number of at least 0")
    )
    top_k: int = field(default=0, validator=_whole(0, allowed="an int of at least 0 (0 = all)"))
    top_p: float = field(
        default=1.0, validator=_number(0, 1, open_low=True, allowed="a number in (0, 1]")
    )
    min_p: float = field(default=0.0, validator=_number(0, 1, allowed="a number in [0, 1]"))
    presence_penalty: float = field(
        default=0.0, validator=_number(-2, 2, allowed="a number in [-2, 2]")
    )
    frequency_penalty: float = field(
        default=0.0, validator=_number(-2, 2, allowed="a number in [-2, 2]")
    )
    repetition_penalty: float = field(
        default=1.0, validator=_number(0, 1e6, open_low=True, allowed="a number above 0")
    )
    seed: int | None = field(
        default=None, validator=_whole(0, allowed="an int of at least 0, or None")
    )
    logprobs: int | None = field(
        default=None, validator=_whole(0, allowed="an int of at least 0, or None")
    )
    stop: tuple[str, ...] = field(default=(), converter=_as_strings, validator=_strings)
    stop_token_ids: tuple[int, ...] = field(default=(), converter=tuple, validator=_token_ids)
    ignore_eos: bool = field(default=False, validator=_a_bool)

    def __attrs_post_init__(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise bad_field(
                "min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})"
            )
