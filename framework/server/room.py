"""Room: how long a request of this engine can get, told before anything is done for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from framework.server.errors import bad_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework.server.faces import EngineInfoLike

MOST_BYTES_A_TOKEN: Final = 128
"""The longest tokens of byte-pair vocabularies, runs of blanks, have so many bytes of UTF-8."""


def check_length(sources: Sequence[Mapping[str, Any]], info: EngineInfoLike) -> None:
    """Raises ApiError if a source is too long for the model, whatever tokens its text becomes."""
    most = info.max_model_len
    for source in sources:
        num_tokens = len(source.get("prompt_token_ids", ()))
        if num_tokens > most:
            told = f"prompt: got {num_tokens} tokens, allowed: at most max_model_len {most}"
            raise bad_value("prompt", told)
        num_bytes = sum(len(text.encode()) for text in _texts(source))
        if num_bytes > most * MOST_BYTES_A_TOKEN:
            name = "messages" if "messages" in source else "prompt"
            told = (
                f"{name}: got {num_bytes} bytes of text, allowed: at most "
                f"{most * MOST_BYTES_A_TOKEN} (max_model_len {most} times {MOST_BYTES_A_TOKEN})"
            )
            raise bad_value(name, told)


def _texts(source: Mapping[str, Any]) -> list[str]:
    if "messages" in source:
        return [message["content"] for message in source["messages"]]
    return [source["prompt"]] if "prompt" in source else []


def most_tokens(info: EngineInfoLike) -> int:
    """Most tokens of a request, prompt and output: what the model takes and the pool holds."""
    return min(info.max_model_len, _in_pool(info))


def warn_if_short(info: EngineInfoLike) -> str | None:
    """A sentence, if the pool is smaller than the longest request that the model takes."""
    if _in_pool(info) >= info.max_model_len:
        return None
    return (
        f"{info.num_blocks} KV blocks of {info.block_size} hold requests of at most "
        f"{_in_pool(info)} tokens, though the model takes {info.max_model_len} "
        "(set --num-blocks, or --max-model-len)"
    )


def _in_pool(info: EngineInfoLike) -> int:
    """One block is reserved."""
    return (info.num_blocks - 1) * info.block_size
