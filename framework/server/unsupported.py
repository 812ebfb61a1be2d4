"""Fields that would change the answer and are not served: refused by name, never passed over.

So are those that are nearly a field's name. Everything else that is unknown is ignored, as OpenAI's
clients expect of other servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from framework.server.errors import ApiError, bad_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from framework.server.schema import ChatRequest, CompletionRequest, Generation

SHORTEST_MISSPELT: Final = 6
"""Shorter names have honest neighbours: top_a, top_k, top_p."""
NOTHING: Final[tuple[Any, ...]] = (None, False, "", [], {})
"""Values that ask for nothing, whatever the field."""

ANY: Final[dict[str, tuple[Any, ...]]] = {
    "logit_bias": (),
    "response_format": ({"type": "text"},),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "allowed_token_ids": (),
    "bad_words": (),
    "prompt_logprobs": (),
    "use_beam_search": (),
    "truncate_prompt_tokens": (),
    "include_stop_str_in_output": (),
    "logits_processors": (),
}
COMPLETION: Final[dict[str, tuple[Any, ...]]] = {**ANY, "suffix": (), "prompt_embeds": ()}
CHAT: Final[dict[str, tuple[Any, ...]]] = {
    **ANY,
    "tools": (),
    "tool_choice": ("none", "auto"),
    "functions": (),
    "function_call": ("none", "auto"),
    "audio": (),
    "modalities": (["text"],),
    "web_search_options": (),
    "echo": (),
    "continue_final_message": (),
    "chat_template": (),
    "chat_template_kwargs": (),
    "documents": (),
}
COMPLETION_TRUE: Final = ("skip_special_tokens", "add_special_tokens")
CHAT_TRUE: Final = ("skip_special_tokens", "add_generation_prompt")
MESSAGE: Final = ("tool_calls", "tool_call_id", "function_call", "audio")


def refuse_for_completion(body: CompletionRequest) -> None:
    """Raises ApiError if a field asks for what cannot be done."""
    _refuse(body.model_extra or {}, COMPLETION, COMPLETION_TRUE)
    _refuse_misspelt(body, {*COMPLETION, *COMPLETION_TRUE, "best_of"})
    best_of = (body.model_extra or {}).get("best_of")
    if best_of not in (None, body.n or 1):
        raise _error("best_of", best_of, f"n ({body.n or 1}), or nothing")
    if body.echo and body.logprobs is not None:
        raise _error("echo", True, "false where logprobs are asked for")
    _refuse_stream_options(body)


def refuse_for_chat(body: ChatRequest) -> None:
    """Raises ApiError if a field asks for what cannot be done."""
    _refuse(body.model_extra or {}, CHAT, CHAT_TRUE)
    _refuse_misspelt(body, {*CHAT, *CHAT_TRUE})
    for index, message in enumerate(body.messages):
        for name in MESSAGE:
            if (message.model_extra or {}).get(name) not in NOTHING:
                value = (message.model_extra or {})[name]
                raise _error(f"messages.{index}.{name}", value, "nothing: it is not supported")
        if message.content is None:
            told = f"messages.{index}.content: it is missing; allowed: a string, or a list of texts"
            raise bad_value("messages", told)
    if body.top_logprobs is not None and not body.logprobs:
        raise _error("top_logprobs", body.top_logprobs, "nothing unless logprobs is true")
    _refuse_stream_options(body)


def _refuse(
    extra: Mapping[str, Any], table: Mapping[str, tuple[Any, ...]], only_true: tuple[str, ...]
) -> None:
    for name in table:
        if name in extra and extra[name] not in (*NOTHING, *table[name]):
            options = ", ".join(map(repr, table[name]))
            allowed = f"{options}, or nothing" if options else "nothing: it is not supported"
            raise _error(name, extra[name], allowed)
    for name in only_true:
        if extra.get(name) is False:
            raise _error(name, False, "true, or nothing")


def _refuse_misspelt(body: Generation, others: set[str]) -> None:
    known = others | set(type(body).model_fields)
    for name, value in (body.model_extra or {}).items():
        if name in known or value is None:
            continue
        meant = next((each for each in sorted(known) if is_nearly(name, each)), None)
        if meant is not None:
            told = f"{name}: there is no such field. Did you mean {meant!r}?"
            raise ApiError(400, told, code="unknown_field", param=name)


def is_nearly(name: str, known: str) -> bool:
    """Whether one letter more, less, other or moved by one makes a name of some length known."""
    if len(known) < SHORTEST_MISSPELT or abs(len(name) - len(known)) > 1:
        return False
    both = list(zip(name, known, strict=False))
    same = next((place for place, (one, other) in enumerate(both) if one != other), len(both))
    rest, right = name[same:], known[same:]
    return (
        rest[1:] == right[1:]
        or rest[1:] == right
        or rest == right[1:]
        or (rest[:2] == right[:2][::-1] and rest[2:] == right[2:])
    )


def _refuse_stream_options(body: Generation) -> None:
    if body.stream_options is not None and not body.stream:
        raise _error("stream_options", body.stream_options.model_dump(), "only with stream=true")


def _error(name: str, value: Any, allowed: str) -> ApiError:
    told = repr(value)
    told = told if len(told) <= 80 else f"{told[:77]}..."
    param = name.partition(".")[0]
    message = f"{name}: got {told}, allowed: {allowed}"
    return ApiError(400, message, code="unsupported_value", param=param)
