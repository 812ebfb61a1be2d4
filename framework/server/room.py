"""Room: how long a request of this engine can get."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework.server.faces import EngineInfoLike


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
