"""Calls that change how the server works: swap the stack, pause, resume, reset the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from framework.server.schema import SwapRequest

if TYPE_CHECKING:
    from framework.server.faces import EngineLike


def admin_routes(engine: EngineLike) -> APIRouter:
    """The routes under /admin; `access.Gate` says who may call them."""
    router = APIRouter(prefix="/admin")

    @router.get("/plugins")
    async def plugins() -> dict[str, Any]:
        return {"plugins": list(await engine.plugins())}

    @router.post("/swap")
    async def swap(body: SwapRequest) -> dict[str, Any]:
        old = list(await engine.plugins())
        return {"old": old, "new": list(await engine.swap(body.plugins))}

    @router.post("/pause")
    async def pause() -> dict[str, Any]:
        await engine.pause()
        return {"is_paused": True}

    @router.post("/resume")
    async def resume() -> dict[str, Any]:
        await engine.resume()
        return {"is_paused": False}

    @router.post("/reset_prefix_cache")
    async def reset_prefix_cache() -> dict[str, Any]:
        return {"was_reset": await engine.reset_prefix_cache()}

    return router
