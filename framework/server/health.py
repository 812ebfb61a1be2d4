"""Health: whether requests are taken, and if not, why and what comes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from attrs import frozen
from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from framework.errors import HeadwayError
from framework.server.errors import RESTART_S

if TYPE_CHECKING:
    from framework.server.desk import Desk

SILENCE_S: Final = 2.0
"""An engine that does not answer for so long is told of."""


@frozen
class Health:
    """How a server stands.

    Attributes:
        desk: whose engine it is about.
        restarts: whether another engine takes the place of a dead one.
    """

    desk: Desk
    restarts: bool

    async def told(self) -> dict[str, str]:
        """`status`, and where requests are not answered, `reason`."""
        engine = self.desk.engine
        if self.desk.is_closing:
            return {"status": "stopping", "reason": "the server is stopping"}
        if engine.is_alive:
            try:
                stats = await asyncio.wait_for(engine.stats(), SILENCE_S)
            except TimeoutError:
                return self._late()
            except HeadwayError:  # it has died meanwhile
                pass
            else:
                return {"status": "paused" if stats.is_paused else "ok"}
        reason = engine.failure or "the engine is not there"
        return {"status": "restarting" if self.restarts else "dead", "reason": reason}

    def _late(self) -> dict[str, str]:
        """A long step keeps the engine from answering, but not from giving signs of life."""
        if self.desk.engine.silence_s < SILENCE_S:
            return {"status": "busy", "reason": f"a step has taken more than {SILENCE_S:g} s"}
        reason = f"the engine has not been heard for {SILENCE_S:g} s"
        return {"status": "silent", "reason": reason}


def health_routes(health: Health) -> APIRouter:
    """GET /health: 200 if requests are taken."""
    router = APIRouter()

    @router.get("/health")
    async def answer() -> Response:
        told = await health.told()
        if told["status"] in ("ok", "paused", "busy"):
            return JSONResponse(told)
        waiting = {"Retry-After": str(RESTART_S)} if told["status"] != "stopping" else None
        return JSONResponse(told, 503, headers=waiting)

    return router
