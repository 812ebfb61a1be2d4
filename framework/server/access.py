"""Gate: who may ask what. It looks at headers alone; nobody's body is read before it.

/health is open: it tells nothing but whether requests are taken. All else needs the API key, if
there is one; /metrics too, since the load and its plugins are nobody else's affair.

A plugin spec can name a file whose code then runs, so without a key the admin calls answer nobody
from outside, no web page and no proxy: peer and Host must be loopback, and there must be no Origin
and no trace of a proxy.
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
FOREIGN: Final = ("origin", "forwarded", "x-forwarded-for", "via")
"""Headers of calls that somebody else than the peer has made."""


class Gate:
    """Middleware: lets in who may come in; the others get what `respond` makes of the error.

    It is the first to see a call, so `state.arrival` is set here.
    """

    def __init__(
        self, app: ASGIApp, api_key: str | None, respond: Callable[[ApiError], Response]
    ) -> None:
        self._app = app
        self._api_key = api_key
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] == "http":
            scope.setdefault("state", {})["arrival"] = time.perf_counter()
            try:
                self._check(Request(scope))
            except ApiError as error:
                await self._respond(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        path = request.url.path
        if path == "/admin" or path.startswith("/admin/"):
            check_admin(request, self._api_key)
        elif path not in OPEN_PATHS:
            check_key(request, self._api_key)


def check_key(request: Request, api_key: str | None) -> None:
    """Raises ApiError 401 unless the call brings the key, if there is one."""
    if api_key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    right = hmac.compare_digest(given.strip().encode(), api_key.encode())
    if scheme.lower() != "bearer" or not right:
        what = "wrong" if given else "missing"
        raise ApiError(
            401,
            f"API key: it is {what}; allowed: the server's, as Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )


def check_admin(request: Request, api_key: str | None) -> None:
    """Raises ApiError unless the caller may change how the server works."""
    if api_key is not None:
        return check_key(request, api_key)
    peer = request.client.host if request.client is not None else ""
    if not is_loopback(peer):
        raise _forbidden(f"peer: got {peer!r}, allowed: this machine, unless there is an API key")
    if not is_loopback(_host_name(request.headers.get("host", ""))):
        host = request.headers.get("host", "")
        raise _forbidden(f"Host: got {host!r}, allowed: a loopback name or address")
    for name in FOREIGN:
        if name in request.headers:
            told = "web pages and proxies may not make admin calls without an API key"
            raise _forbidden(f"{name.title()}: got one, allowed: none; {told}")
    return None


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(header: str) -> str:
    """The host of a Host header, without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def _forbidden(message: str) -> ApiError:
    return ApiError(403, message, code="admin_forbidden")
