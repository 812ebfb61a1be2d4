"""A short request before the first client's, which else waits for what is set up on first use."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from framework.engine.prompts import Prompt
from framework.errors import HeadwayError
from framework.sampling import SamplingParams

if TYPE_CHECKING:
    from framework.server.faces import EngineLike

PATIENCE_S: Final = 60.0
"""A policy may let nobody in; the server serves all the same."""
PARAMS: Final = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True)
log = logging.getLogger("headway.server")


async def warm_up(engine: EngineLike) -> None:
    """Answer one short request, and forget what it left in the prefix cache.

    A failure is logged: clients will be told of the same one.
    """
    try:
        await asyncio.wait_for(_answer(engine), PATIENCE_S)
        await engine.reset_prefix_cache()
    except (TimeoutError, HeadwayError) as error:
        told = error if str(error) else f"it has not ended within {PATIENCE_S:g} s"
        log.warning("a first request, sent by the server itself, failed: %s", told)


async def _answer(engine: EngineLike) -> None:
    tokenizer = engine.tokenizer
    if tokenizer is not None and tokenizer.has_chat_template:
        prompt = Prompt(messages=({"role": "user", "content": "Hello"},), sampling_params=PARAMS)
    else:
        prompt = Prompt(prompt_token_ids=(0,), sampling_params=PARAMS)
    stream = await engine.submit(prompt)
    try:
        async for piece in stream:
            if piece.error is not None:
                raise HeadwayError(piece.error)
    finally:
        await stream.aclose()
