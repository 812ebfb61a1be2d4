"""The app: routes, limits and errors around one engine."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response

from framework.errors import HeadwayError
from framework.server.access import Gate
from framework.server.admin import admin_routes
from framework.server.body_limit import BodyLimit
from framework.server.desk import Desk
from framework.server.engine_metrics import EngineMetrics
from framework.server.errors import CODES, ApiError, as_api_error, from_validation
from framework.server.generation import GENERATING, check_model, generation_routes
from framework.server.health import Health, health_routes
from framework.server.meter import Meter
from framework.server.room import most_tokens
from framework.server.watch import ClientGoneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from framework.server.faces import EngineLike
    from framework.server.settings import ServerSettings

CLIENT_GONE = 499
PATHS = (*GENERATING, "/v1/models", "/health", "/metrics", "/admin/...")
log = logging.getLogger("headway.server")


def create_app(engine: EngineLike, settings: ServerSettings) -> tuple[FastAPI, Desk]:
    """The app over an engine, and the desk that knows what is unfinished."""
    name = settings.model_names[0]
    meter = Meter(name, engine.info.max_model_len)
    figures = EngineMetrics(engine, name)
    meter.registry.register(figures)
    desk = Desk(
        engine=engine,
        meter=meter,
        max_queue=settings.max_queue,
        max_per_tenant=settings.max_per_tenant,
    )
    app = FastAPI(title="Headway", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.figures = figures

    def respond(error: ApiError, path: str) -> Response:
        if path in GENERATING:
            meter.refused(error.code)
        return JSONResponse(error.body, error.status, headers=error.headers)

    for router in (
        health_routes(Health(desk, settings.restarts)),
        _metrics(meter, figures),
        _models(engine, settings.model_names),
        generation_routes(desk, settings),
        admin_routes(engine),
    ):
        app.include_router(router)
    app.add_middleware(BodyLimit, most=settings.max_body_bytes)
    app.add_middleware(
        Gate, api_key=settings.api_key, admin_key=settings.admin_key, respond=respond
    )
    if settings.cors_origins:  # outside the gate: a browser's first question brings no key
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("X-Request-Id", "Retry-After"),
        )
    _add_handlers(app, respond)
    return app, desk


def _metrics(meter: Meter, figures: EngineMetrics) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics")
    async def metrics() -> Response:
        await figures.refresh()
        return Response(generate_latest(meter.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router


def _models(engine: EngineLike, names: tuple[str, ...]) -> APIRouter:
    router, created = APIRouter(), int(time.time())

    def card(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "headway",
            "max_model_len": most_tokens(engine.info),
        }

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [card(name) for name in names]}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        check_model(name, names)
        return card(name)

    return router


def _add_handlers(app: FastAPI, respond: Callable[[ApiError, str], Response]) -> None:
    def add(kind: type[Exception], convert: Callable[[Any, Request], ApiError]) -> None:
        async def handle(request: Request, error: Exception) -> Response:
            return respond(convert(error, request), request.scope["path"])

        app.add_exception_handler(kind, _as_handler(handle))

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)

    add(HeadwayError, _told)
    add(RequestValidationError, lambda error, _: from_validation(error.errors()))
    add(HTTPException, _from_http)
    add(Exception, _told)
    app.add_exception_handler(ClientGoneError, gone)


def _as_handler(handle: Callable[[Request, Exception], Awaitable[Response]]) -> Any:
    return handle


def _told(error: Exception, _: Request) -> ApiError:
    told = as_api_error(error)
    if told.status >= 500:
        log.error("%s: %s", type(error).__name__, error)
    return told


def _from_http(error: HTTPException, request: Request) -> ApiError:
    if error.status_code == 400:  # of the framework's making: it could not read the body
        return ApiError(400, "body: not JSON: it cannot be read", code="invalid_json")
    if error.status_code == 404:
        told = f"path: got {request.scope['path']}, allowed: {', '.join(PATHS)}"
        return ApiError(404, told, code="not_found")
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another one")
        told = f"method: got {request.method}, allowed for {request.scope['path']}: {allowed}"
        return ApiError(405, told, code="method_not_allowed", headers=error.headers)
    code = CODES.get(error.status_code, "invalid_request")
    return ApiError(error.status_code, error.detail, code=code, headers=error.headers)
