"""The server's own first request: it leaves nothing behind and keeps no server from serving."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from framework.server.warmup import warm_up

if TYPE_CHECKING:
    from tests.server.standin import Server

MODEL = '{model_name="scripted"}'


def test_a_first_request_goes_through_the_template_and_leaves_no_metrics(server: Server) -> None:
    encoded: list[Any] = []
    encode = server.engine.tokenizer.encode_chat
    server.engine.front.model.tokenizer.encode_chat = lambda messages: (
        encoded.append(messages) or encode(messages)
    )

    async def begin() -> None:
        await warm_up(server.engine)
        await server.figures.begin()

    asyncio.run(begin())
    assert encoded and server.engine.front.core.scheduler.counters.num_prefix_queried > 0
    assert not server.engine.front.has_live
    for name in ("prefix_cache_queries_total", "prompt_tokens_total"):
        assert server.metric(f"vllm:{name}{MODEL}") == 0


def test_a_first_request_that_fails_is_logged(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("framework.server.warmup.PATIENCE_S", 0.05)
    server.engine.is_paused = True
    asyncio.run(warm_up(server.engine))
    assert "it has not ended within 0.05 s" in caplog.text
    assert not server.engine.front.has_live
    server.engine.failure = "killed by SIGKILL"
    asyncio.run(warm_up(server.engine))
    assert "failed: killed by SIGKILL" in caplog.text
