"""What a new request must satisfy, and the length at which it will end."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from framework.errors import RequestError
from framework.hooks import NOTHING
from framework.request import Status

if TYPE_CHECKING:
    from framework.books import Books
    from framework.request import Request


def check_new(books: Books, request: Request) -> None:
    """Refuse what can never run, and set `length_limit`. Changes nothing else."""
    name = request.request_id
    if not isinstance(name, str) or not name:
        raise RequestError(f"request_id: got {name!r}, allowed: a non-empty string")
    if name in books.requests or name in books.held or name in books.aborted_loads:
        raise RequestError(f"request_id: {name!r} is in use by an unfinished request")
    if request.status is not Status.WAITING or request.num_computed_tokens:
        raise RequestError(f"request {name!r} was added before; build a new Request")
    if request.kv_transfer_params is not None and books.hooks.lookup_external is NOTHING:
        raise RequestError(
            f"request {name!r}: kv_transfer_params: got options, allowed: none (no plugin of the "
            "stack owns external KV; kv_offload is one)"
        )
    _check_prompt(books, request)
    limit_length(books, request)


def _check_prompt(books: Books, request: Request) -> None:
    name, config = request.request_id, books.config
    length = request.num_prompt_tokens
    try:
        array("I", request.prompt_token_ids)
    except (TypeError, OverflowError) as error:
        raise RequestError(
            f"request {name!r}: prompt_token_ids: {error}; allowed: ints from 0 to 2**32 - 1"
        ) from error
    longest = config.max_model_len - (0 if request.needs_pooling else 1)
    if not 1 <= length <= longest:
        raise RequestError(
            f"request {name!r}: prompt has {length} tokens, allowed: 1 to {longest} "
            f"(max_model_len {config.max_model_len})"
        )


def limit_length(books: Books, request: Request) -> None:
    """Set the length at which it will end; refuse what the pool can never hold."""
    config, kv, length = books.config, books.kv, request.num_prompt_tokens
    max_tokens = request.sampling_params.max_tokens
    request.length_limit = min(length + (max_tokens or config.max_model_len), config.max_model_len)
    if kv is None:
        return
    if max_tokens is None:
        request.length_limit = min(request.length_limit, max(kv.max_num_tokens, length) + 1)
    stored = length if max_tokens is None else min(length + max_tokens - 1, config.max_model_len)
    needed = kv.num_blocks_needed(stored)
    if needed > kv.num_total_blocks:
        raise RequestError(
            f"request {request.request_id!r} can never fit: {stored} tokens (prompt {length}, "
            f"max_tokens {max_tokens}) need {needed} KV blocks of {config.block_size}, "
            f"the pool has {kv.num_total_blocks}"
        )
