"""Launches of the sampling kernels, with the vocabulary and context of Llama-3.1-8B."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from runners.triton.aot.attention import REQUESTS, empty, integers
from runners.triton.kernels.bitmask import apply_bitmask
from runners.triton.kernels.distributions import write_distributions
from runners.triton.kernels.logprobs import token_logprobs
from runners.triton.kernels.lossless_rejection import reject_drafts
from runners.triton.kernels.penalties import apply_penalties
from runners.triton.kernels.rejection import verify_drafts
from runners.triton.kernels.sample import sample_tokens
from runners.triton.kernels.stop_tokens import suppress_stop_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

VOCABULARY = 128256
ODD_VOCABULARY = 50257
"""GPT-2's: rows start at any address."""
CONTEXT = 131072
DRAFTS = 4


def floats(*shape: int) -> torch.Tensor:
    """Probabilities and parameters."""
    return empty(*shape, dtype=torch.float32)


def longs(*shape: int) -> torch.Tensor:
    """Seeds and positions."""
    return empty(*shape, dtype=torch.int64)


def launch_bitmask() -> None:
    """A row a request."""
    words = integers(REQUESTS, VOCABULARY // 32)
    apply_bitmask(empty(REQUESTS, VOCABULARY), words, integers(REQUESTS))


def launch_stop_tokens() -> None:
    """A few a request."""
    suppress_stop_tokens(empty(REQUESTS, VOCABULARY), integers(REQUESTS, 8))


def launch_penalties() -> None:
    """All three, with drafts."""
    apply_penalties(
        empty(REQUESTS, VOCABULARY),
        integers(REQUESTS, CONTEXT),
        row_of=integers(REQUESTS),
        lengths=integers(REQUESTS),
        prompt_lengths=integers(REQUESTS),
        drafts=integers(REQUESTS, DRAFTS),
        num_drafts=integers(REQUESTS),
        repetition=floats(REQUESTS),
        presence=floats(REQUESTS),
        frequency=floats(REQUESTS),
        counts=integers(16, VOCABULARY),
    )


def launch_sample(dtype: torch.dtype, vocabulary: int = VOCABULARY) -> None:
    """With every filter."""
    heat, top_p, min_p = floats(REQUESTS), floats(REQUESTS), floats(REQUESTS)
    sample_tokens(
        empty(REQUESTS, vocabulary, dtype=dtype),
        heat,
        integers(REQUESTS),
        top_p,
        min_p,
        longs(REQUESTS),
        longs(REQUESTS),
        integers(REQUESTS),
        limits=floats(REQUESTS, 3),
    )


def launch_distributions() -> None:
    """As sampling left them."""
    write_distributions(
        empty(REQUESTS, VOCABULARY),
        floats(REQUESTS),
        integers(REQUESTS),
        floats(REQUESTS, 3),
        floats(REQUESTS, VOCABULARY),
    )


def launch_verify_drafts() -> None:
    """Of greedy drafts."""
    verify_drafts(
        integers(REQUESTS * (DRAFTS + 1)),
        integers(REQUESTS, DRAFTS),
        integers(REQUESTS),
        integers(REQUESTS),
        integers(REQUESTS, DRAFTS + 1),
        integers(REQUESTS),
    )


def launch_reject_drafts(vocabulary: int = VOCABULARY) -> None:
    """Of drawn drafts."""
    reject_drafts(
        floats(REQUESTS * (DRAFTS + 1), vocabulary),
        floats(REQUESTS, DRAFTS, vocabulary),
        integers(REQUESTS, DRAFTS),
        integers(REQUESTS),
        integers(REQUESTS),
        longs(REQUESTS),
        longs(REQUESTS),
        integers(REQUESTS, DRAFTS + 1),
        integers(REQUESTS),
    )


def launch_logprobs() -> None:
    """Of the drawn tokens."""
    token_logprobs(empty(REQUESTS, VOCABULARY), integers(REQUESTS))


LAUNCHES: list[tuple[str, str, Callable[[], None]]] = [
    ("apply_bitmask", "", launch_bitmask),
    ("suppress_stop_tokens", "", launch_stop_tokens),
    ("apply_penalties", "", launch_penalties),
    ("sample_tokens", "", partial(launch_sample, torch.bfloat16)),
    ("sample_tokens", "float32", partial(launch_sample, torch.float32)),
    ("sample_tokens", "odd vocabulary", partial(launch_sample, torch.float32, ODD_VOCABULARY)),
    ("write_distributions", "", launch_distributions),
    ("verify_drafts", "", launch_verify_drafts),
    ("reject_drafts", "", launch_reject_drafts),
    ("reject_drafts", "odd vocabulary", partial(launch_reject_drafts, ODD_VOCABULARY)),
    ("token_logprobs", "", launch_logprobs),
]
"""(launcher, what sets the launch apart from others of it, the launch)."""
