"""A server with a stand-in for its engine, listening on a free port, always ended."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import httpx

from framework.server.app import create_app
from framework.server.serving import DrainingServer, Listening, bind, serve_on
from framework.server.settings import ServerSettings
from tests.server.standin import build_server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SETTINGS = ServerSettings(model_names=("scripted",))


def serving(work: Callable[..., Coroutine[Any, Any, Any]], drain_s: float = 0.0) -> Any:
    """The result of work(client, server, engine) against a listening server, which then ends."""

    async def within() -> Any:
        engine = build_server().engine
        app, desk = create_app(engine, SETTINGS)
        listening = Listening(port=0, drain_s=drain_s)
        urls: list[str] = []
        with bind(listening) as bound:
            server: DrainingServer = serve_on(app, desk, SETTINGS, listening, urls.append)
            task = asyncio.create_task(server.serve(sockets=[bound]))
            while not urls:
                await asyncio.sleep(0.01)
            async with httpx.AsyncClient(base_url=urls[0], timeout=20) as client:
                result = await work(client, server, engine)
            if server.signal is None:
                server.handle_exit(signal.SIGTERM)
            await asyncio.wait_for(task, 20)
        return result

    return asyncio.run(within())
