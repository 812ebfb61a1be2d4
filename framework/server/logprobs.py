"""Log-probabilities as the two kinds of calls tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from framework.engine.detokenize import HALF_CHARACTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.engine.tokenizer import Tokenizer
    from framework.output import TokenLogprobs

LOWEST: Final = -9999.0
"""JSON has no infinity; OpenAI's stand-in for what is all but impossible."""


def text_of(tokenizer: Tokenizer | None, token_id: int) -> str:
    """The text of one token; without a tokenizer its number."""
    return f"token_id:{token_id}" if tokenizer is None else tokenizer.decode([token_id])


def for_completion(
    tokenizer: Tokenizer | None,
    token_ids: Sequence[int],
    entries: Sequence[TokenLogprobs],
    num_top: int,
    offsets: Sequence[int],
) -> dict[str, Any] | None:
    """The columns of a completion's logprobs; None if the runner gives none.

    `offsets` are where the tokens begin in the text.
    """
    if token_ids and not entries:
        return None
    tokens = [text_of(tokenizer, token_id) for token_id in token_ids]
    top = [_top_of(tokenizer, entry, num_top) for entry in entries] if num_top else None
    return {
        "tokens": tokens,
        "token_logprobs": [_finite(entry.logprob) for entry in entries],
        "top_logprobs": top,
        "text_offset": list(offsets),
    }


def _top_of(tokenizer: Tokenizer | None, entry: TokenLogprobs, num_top: int) -> dict[str, float]:
    """Token texts to log-probabilities; of tokens with one text the likeliest."""
    found: dict[str, float] = {}
    for token_id, logprob in list(entry.top.items())[:num_top]:
        found.setdefault(text_of(tokenizer, token_id), _finite(logprob))
    return found


def for_chat(
    tokenizer: Tokenizer | None,
    token_ids: Sequence[int],
    entries: Sequence[TokenLogprobs],
    num_top: int,
) -> dict[str, Any] | None:
    """`content` of a chat choice's logprobs; None if the runner gives none."""
    if token_ids and not entries:
        return None
    content = []
    for token_id, entry in zip(token_ids, entries, strict=True):
        top = [
            _token(tokenizer, other, logprob)
            for other, logprob in list(entry.top.items())[:num_top]
        ]
        content.append({**_token(tokenizer, token_id, entry.logprob), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _token(tokenizer: Tokenizer | None, token_id: int, logprob: float) -> dict[str, Any]:
    text = text_of(tokenizer, token_id)
    is_whole = HALF_CHARACTER not in text  # the bytes of half a character are not known here
    return {
        "token": text,
        "logprob": _finite(logprob),
        "bytes": list(text.encode()) if is_whole else None,
    }


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
