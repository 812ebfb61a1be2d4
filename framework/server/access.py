"""Gate: who may ask what. It looks at headers alone; nobody's body is read before it.

/health is open: it tells nothing but whether requests are taken. All else needs the API key, if
there is one; /metrics too, since the load and its plugins are nobody else's affair.

A plugin spec can name a file whose code then runs, so admin calls always need a key, and one of
their own: clients have the other. Where a call comes from says nothing, behind a proxy all come
from this machine. Web pages are turned away even with the key.
"""

from __future__ import annotations

import hmac
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from framework.server.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS: Final = ("/health",)


class Gate:
    """Middleware: lets in who may come in; the others get what `respond` makes of error and path.

    It is the first to see a call, so `state.arrival` is set here.
    """

    def __init__(
        self,
        app: ASGIApp,
        api_key: str | None,
        admin_key: str | None,
        respond: Callable[[ApiError, str], Response],
    ) -> None:
        self._app = app
        self._api_key = api_key
        self._admin_key = admin_key
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] == "http":
            scope.setdefault("state", {})["arrival"] = time.perf_counter()
            try:
                self._check(Request(scope))
            except ApiError as error:
                await self._respond(error, scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        path = request.scope["path"]  # that of the URL would depend on the Host header
        if path == "/admin" or path.startswith("/admin/"):
            check_admin(request, self._admin_key)
        elif path not in OPEN_PATHS:
            check_key(request, self._api_key)


def check_key(request: Request, api_key: str | None) -> None:
    """Raises ApiError 401 unless the call brings the key, if there is one."""
    if api_key is not None:
        _check_bearer(request, api_key, "API key", "invalid_api_key")


def check_admin(request: Request, admin_key: str | None) -> None:
    """Raises ApiError unless the caller may change how the server works."""
    if "origin" in request.headers:
        told = "Origin: got one, allowed: none; web pages may not make admin calls"
        raise ApiError(403, told, code="admin_forbidden")
    if admin_key is None:
        raise ApiError(403, "admin calls: there is no admin key", code="admin_forbidden")
    _check_bearer(request, admin_key, "admin key", "invalid_admin_key")


def _check_bearer(request: Request, key: str, what: str, code: str) -> None:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    right = hmac.compare_digest(given.strip().encode(), key.encode())
    if scheme.lower() != "bearer" or not right:
        state = "wrong" if given else "missing"
        raise ApiError(
            401,
            f"{what}: it is {state}; allowed: the server's, as Authorization: Bearer KEY",
            code=code,
            headers={"WWW-Authenticate": "Bearer"},
        )


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
