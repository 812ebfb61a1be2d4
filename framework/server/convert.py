"""From the body of a call to the prompts that an engine is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import evolve, frozen

from framework.engine.prompts import Prompt
from framework.sampling import SamplingParams
from framework.server.errors import bad_value
from framework.server.schema import is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from framework.engine.tokenizer import Tokenizer
    from framework.server.schema import ChatRequest, CompletionRequest, Generation

DEFAULT_COMPLETION_TOKENS: Final = 16
PROMPTS_ALLOWED: Final = (
    "a non-empty string, a list of them, a list of token ids (ints of at least 0), "
    "or a list of such lists"
)
_PASSED_ON: Final = (
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "min_p"),
    *("repetition_penalty", "min_tokens", "ignore_eos", "seed", "stop", "stop_token_ids"),
)


Source: TypeAlias = "dict[str, Any]"
"""One of prompt, prompt_token_ids and messages, by its name."""
Admit: TypeAlias = "Callable[[Sequence[Source], int], None]"


@frozen(kw_only=True)
class Asked:
    """What one call asks for.

    Attributes:
        prompts: one a choice: `num_choices` in a row belong to one source.
        num_choices: choices a source.
        echoes: the text that each source's choices begin with, or empty strings.
    """

    prompts: tuple[Prompt, ...]
    num_choices: int
    echoes: tuple[str, ...]


def _anything(_: Sequence[Source], __: int) -> None:
    """Admit a call of any size."""


def from_completion(
    body: CompletionRequest,
    name: str,
    tokenizer: Tokenizer | None,
    most: int | None = None,
    admit: Admit = _anything,
) -> Asked:
    """The prompts of a completion call.

    Args:
        body: what was sent.
        name: what the call is called.
        tokenizer: of the model.
        most: output tokens that no choice goes beyond; None = no such limit.
        admit: is told the sources and the number of choices before any of them is made.

    Raises:
        ApiError, ConfigError, RequestError: a field has a wrong value.
    """
    max_tokens = DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    params = _sampling(body, _limited(max_tokens, most), body.logprobs)
    sources: list[Source] = [
        {"prompt": source} if isinstance(source, str) else {"prompt_token_ids": source}
        for source in _sources(body.prompt)
    ]
    admit(sources, len(sources) * (body.n or 1))
    echoes = tuple(_echo(source, tokenizer) if body.echo else "" for source in sources)
    return _spread(body, name, sources, params, echoes)


def from_chat(
    body: ChatRequest, name: str, most: int | None = None, admit: Admit = _anything
) -> Asked:
    """The prompts of a chat call; for the other arguments see `from_completion`.

    Raises:
        ApiError, ConfigError, RequestError: a field has a wrong value.
    """
    given = body.max_completion_tokens
    max_tokens = body.max_tokens if given is None else given
    num_logprobs = (body.top_logprobs or 0) if body.logprobs else None
    params = _sampling(body, _limited(max_tokens, most), num_logprobs)
    messages = [message.as_message() for message in body.messages]
    sources: list[Source] = [{"messages": messages}]
    admit(sources, body.n or 1)
    return _spread(body, name, sources, params, ("",))


def _limited(max_tokens: int | None, most: int | None) -> int | None:
    return min((limit for limit in (max_tokens, most) if limit is not None), default=None)


def _sources(prompt: Any) -> list[Any]:
    """One source each: text, or a list of token ids."""
    if is_text(prompt) and prompt:
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(_is_token(item) for item in prompt):
            return [prompt]
        if all(is_text(item) and item for item in prompt):
            return prompt
        if all(_are_tokens(item) for item in prompt):
            return prompt
    told = repr(prompt)
    told = told if len(told) <= 80 else f"{told[:77]}..."
    raise bad_value("prompt", f"prompt: got {told}, allowed: {PROMPTS_ALLOWED}")


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_token, value))


def _is_token(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _echo(source: Source, tokenizer: Tokenizer | None) -> str:
    if "prompt" in source:
        return str(source["prompt"])
    return "" if tokenizer is None else tokenizer.decode(source["prompt_token_ids"])


def _sampling(body: Generation, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    given = {name: getattr(body, name) for name in _PASSED_ON}
    if body.top_k is not None:
        given["top_k"] = 0 if body.top_k == -1 else body.top_k  # vLLM's "all"
    return SamplingParams(
        max_tokens=max_tokens,
        logprobs=logprobs,
        **{name: value for name, value in given.items() if value is not None},
    )


def _spread(
    body: Generation,
    name: str,
    sources: Sequence[Source],
    params: SamplingParams,
    echoes: tuple[str, ...],
) -> Asked:
    num_choices = body.n or 1
    total = len(sources) * num_choices
    prompts: list[Prompt] = []
    for source in sources:
        for choice in range(num_choices):
            request_id = name if total == 1 else f"{name}-{len(prompts)}"
            own = params
            if params.seed is not None and choice:
                own = evolve(params, seed=params.seed + choice)
            prompts.append(
                Prompt(
                    **source,
                    request_id=request_id,
                    sampling_params=own,
                    priority=body.priority or 0,
                    tenant=body.user or None,
                    deadline_s=body.deadline_s,
                    kv_transfer_params=body.kv_transfer_params,
                    where=_where(source, len(sources), len(prompts) // num_choices),
                )
            )
    return Asked(prompts=tuple(prompts), num_choices=num_choices, echoes=echoes)


def _where(source: Source, num_sources: int, index: int) -> str:
    """What an error calls a source."""
    if "messages" in source:
        return "request"
    return "prompt" if num_sources == 1 else f"prompt.{index}"
