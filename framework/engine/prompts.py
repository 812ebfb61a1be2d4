"""Prompt: one thing to answer, checked, whatever form it came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
from attrs import field, frozen

from framework.errors import RequestError, bad_field
from framework.request import Request
from framework.sampling import SamplingParams

if TYPE_CHECKING:
    from framework.engine.tokenizer import Tokenizer

Message: TypeAlias = Mapping[str, str]
PromptLike: TypeAlias = "str | Sequence[Message] | Sequence[int] | Prompt"
"""Text, a conversation, token ids, or a Prompt."""


def _text(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not isinstance(value, str):
        raise bad_field(attribute.name, value, "a string")


def _request_id(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not (isinstance(value, str) and value):
        raise bad_field("id", value, "a non-empty string, or an int")


def _messages(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    for message in value:
        good = isinstance(message, Mapping) and {"role", "content"} <= set(message)
        if not good or not all(isinstance(text, str) for text in message.values()):
            raise bad_field(attribute.name, message, "objects with the strings role and content")


def _token_ids(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    for token in value or ():
        if type(token) is not int or token < 0:
            raise bad_field(attribute.name, token, "a list of ints of at least 0")


def _priority(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int:
        raise bad_field(attribute.name, value, "an int (lower is more urgent)")


def _arrival(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    number = isinstance(value, int | float) and type(value) is not bool
    if not number or not isfinite(value) or value < 0:
        raise bad_field(attribute.name, value, "a number of seconds of at least 0")


def _deadline(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None:
        _arrival(instance, attribute, value)


def _object(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not isinstance(value, dict):
        raise bad_field(attribute.name, value, "an object, or None")


def _as_id(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _listed(check: Any) -> Any:
    def check_list(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is not None and not isinstance(value, tuple):
            raise bad_field(attribute.name, value, "a list")
        check(instance, attribute, value)

    return check_list


@frozen(kw_only=True)
class Prompt:
    """One thing to answer: exactly one of `prompt`, `messages` and `prompt_token_ids`.

    Attributes:
        prompt: plain text, continued as it stands.
        messages: a conversation of {"role": ..., "content": ...}, put into the model's template.
        prompt_token_ids: token ids, taken as they are.
        request_id: its name; None = numbered by the front.
        sampling_params: how to sample and when to stop.
        priority: lower is more urgent.
        tenant: whose it is, or None.
        arrival_s: seconds after the start at which it arrives, where arrivals are played.
        deadline_s: seconds after its arrival by which it should be done, or None; for policies.
        kv_transfer_params: options of the stack's owner of external KV, or None.
        where: what an error calls it, such as "file.jsonl line 3".

    Raises:
        ConfigError: a field has a wrong value.
        RequestError: none or several of the three sources are given.
    """

    prompt: str | None = field(default=None, validator=_text)
    messages: tuple[Message, ...] | None = field(
        default=None, converter=_as_tuple, validator=_listed(_messages)
    )
    prompt_token_ids: tuple[int, ...] | None = field(
        default=None, converter=_as_tuple, validator=_listed(_token_ids)
    )
    request_id: str | None = field(default=None, converter=_as_id, validator=_request_id)
    sampling_params: SamplingParams = field(factory=SamplingParams)
    priority: int = field(default=0, validator=_priority)
    tenant: str | None = field(default=None, validator=_text)
    arrival_s: float = field(default=0.0, validator=_arrival)
    deadline_s: float | None = field(default=None, validator=_deadline)
    kv_transfer_params: dict[str, Any] | None = field(default=None, validator=_object)
    where: str = "prompt"

    def __attrs_post_init__(self) -> None:
        sources = (self.prompt, self.messages, self.prompt_token_ids)
        num_given = sum(source is not None for source in sources)
        if num_given != 1:
            raise RequestError(
                f"got {num_given} of prompt, messages and prompt_token_ids; allowed: exactly one"
            )

    @classmethod
    def of(cls, value: PromptLike, sampling_params: SamplingParams, where: str) -> Prompt:
        """A prompt from text, a conversation or token ids; a Prompt is returned as it is."""
        if isinstance(value, Prompt):
            return value
        if isinstance(value, str):
            return cls(prompt=value, sampling_params=sampling_params, where=where)
        items: tuple[Any, ...] = tuple(value)
        if items and isinstance(items[0], Mapping):
            return cls(messages=items, sampling_params=sampling_params, where=where)
        return cls(prompt_token_ids=items, sampling_params=sampling_params, where=where)

    def encode(self, tokenizer: Tokenizer | None) -> list[int]:
        """Its token ids.

        Raises:
            RequestError: there is nothing in it, it has text and there is no tokenizer, or the
                chat template refuses it.
        """
        try:
            token_ids = self._encode(tokenizer)
        except RequestError as error:
            raise RequestError(f"{self.where}: {error}") from error
        if not token_ids:
            raise RequestError(f"{self.where}: the prompt is empty; allowed: at least one token")
        return token_ids

    def as_request(
        self, token_ids: Sequence[int], name: str, arrival_time: float, eos: Sequence[int] = ()
    ) -> Request:
        """The scheduler's record of it, once it has token ids and a name."""
        deadline = None if self.deadline_s is None else arrival_time + self.deadline_s
        return Request(
            name,
            token_ids,
            self.sampling_params,
            arrival_time=arrival_time,
            priority=self.priority,
            tenant=self.tenant,
            kv_transfer_params=self.kv_transfer_params,
            deadline=deadline,
            eos_token_ids=eos,
        )

    def check(
        self, token_ids: Sequence[int], tokenizer: Tokenizer | None, size: int | None
    ) -> None:
        """See that stop strings can be found and the model knows the tokens.

        Raises:
            RequestError: not so.
        """
        if self.sampling_params.stop and tokenizer is None:
            raise RequestError(f"{self.where}: stop strings need a tokenizer and there is none")
        if size is not None and max(token_ids) >= size:
            raise RequestError(
                f"{self.where}: prompt_token_ids: got {max(token_ids)}, allowed: below {size}, "
                "the tokens that the model knows"
            )

    def _encode(self, tokenizer: Tokenizer | None) -> list[int]:
        if self.prompt_token_ids is not None:
            return list(self.prompt_token_ids)
        if tokenizer is None:
            raise RequestError("text needs a tokenizer and there is none; give prompt_token_ids")
        if self.prompt:
            return tokenizer.encode(self.prompt)
        return tokenizer.encode_chat(self.messages) if self.messages else []
