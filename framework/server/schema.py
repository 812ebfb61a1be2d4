"""What clients may send. Fields that nobody here knows stay in `model_extra`; see `unsupported`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MOST_CHOICES = 128
MOST_LOGPROBS = 20
MOST_STOPS = 64
LARGEST = 2**53
"""JSON numbers above it are not exact everywhere."""


def _encodable(text: str) -> str:
    """JSON may hold halves of surrogate pairs, which are no text."""
    if not is_text(text):
        raise ValueError("text without lone surrogates")
    return text


def is_text(value: object) -> bool:
    """Whether it is a string that can be encoded."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


Text: TypeAlias = Annotated[str, AfterValidator(_encodable)]
Whole: TypeAlias = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Stop: TypeAlias = Annotated[list[Text], Field(max_length=MOST_STOPS)]


class Strict(BaseModel):
    """Base: numbers are numbers, and unknown fields are kept aside."""

    model_config = ConfigDict(strict=True, extra="allow")


class StreamOptions(Strict):
    """How a stream tells its usage."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Generation(Strict):
    """What completions and chat completions have in common.

    `user` is the tenant. The fields from `priority` on are not OpenAI's; vLLM has them too, but
    for `deadline_s`, in seconds after arrival.
    """

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Whole | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: Whole | None = None
    stop: Text | Stop | None = None
    user: Text | None = None
    priority: Whole | None = None
    deadline_s: float | None = None
    top_k: Whole | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: Whole | None = None
    stop_token_ids: list[Whole] | None = None
    ignore_eos: bool | None = None
    kv_transfer_params: dict[str, Any] | None = None


class CompletionRequest(Generation):
    """POST /v1/completions."""

    prompt: Any = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    echo: bool | None = None


class TextPart(Strict):
    """A part of a message."""

    type: Literal["text"]
    text: Text


class ChatMessage(Strict):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart] | None = None

    def as_message(self) -> dict[str, str]:
        """What a chat template takes."""
        content = self.content or ""
        if not isinstance(content, str):
            content = "\n".join(part.text for part in content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class ChatRequest(Generation):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Whole | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None


class SwapRequest(BaseModel):
    """POST /admin/swap."""

    model_config = ConfigDict(strict=True, extra="forbid")

    plugins: list[Text]
