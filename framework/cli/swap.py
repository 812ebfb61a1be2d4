"""`headway swap`: put another stack into a running server."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

import click

from framework.arguments import split_arguments
from framework.cli.options import common_options
from framework.cli.report import headline, write_json
from framework.errors import ConfigError, HeadwayError, PluginError, bad_field
from framework.server.admin_key import find_key
from framework.stack import parse_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_S = 60
OWN_HOSTS = ("localhost", "127.0.0.1", "::1")


@click.command("swap", epilog="Example: headway swap priority --url http://127.0.0.1:8000")
@click.argument("stack", metavar="STACK")
@click.option(
    "--url",
    default="http://127.0.0.1:8000",
    show_default=True,
    metavar="URL",
    help="Where `headway serve` listens.",
)
@click.option(
    "--admin-key",
    envvar="HEADWAY_ADMIN_KEY",
    show_envvar=True,
    metavar="KEY",
    help="The server's.  [default: that of your own server at this port of this machine]",
)
@common_options
def command(stack: str, url: str, admin_key: str | None, json_path: Path | None) -> int:
    """Change the plugins of a running server between two of its steps.

    STACK is one+another, the last is asked first. Requests that wait or run are carried over. A
    stack that fails its check leaves the old one in place: exit status 2.
    """
    specs = [with_absolute_path(spec) for spec in parse_stack(stack)]
    url = _checked(url)
    answer = _post(f"{url}/admin/swap", {"plugins": specs}, admin_key or _own_key(url))
    line = f"{_told(answer['old'])} -> {_told(answer['new'])}"
    write_json(json_path, {"headline": line, "old": answer["old"], "new": answer["new"]})
    headline(line)
    return 0


def with_absolute_path(spec: str) -> str:
    """path/to/file.py:Name as the server, which works in another folder, will find it."""
    target, _ = split_arguments(spec)
    place, colon, _ = target.rpartition(":")
    if not (colon and place.endswith(".py")):
        return spec
    return f"{Path(place).expanduser().absolute()}{spec[len(place) :]}"


def _told(names: Sequence[str]) -> str:
    return "+".join(names)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none
        is_right = False
    if not is_right:
        raise bad_field("url", url, "http://HOST:PORT")
    return url.rstrip("/")


def _own_key(url: str) -> str | None:
    """What a server of this user, at a port of this machine, has left for him."""
    parts = urlsplit(url)
    if parts.hostname not in OWN_HOSTS:
        return None
    return find_key(parts.port or (443 if parts.scheme == "https" else 80))


def _post(url: str, body: dict[str, Any], admin_key: str | None) -> Any:
    """The JSON that comes back.

    Raises:
        PluginError: the server refuses the stack.
        ConfigError: it is not there, or refuses the caller.
        HeadwayError: it failed.
    """
    headers = {"Content-Type": "application/json"}
    if admin_key is not None:
        headers["Authorization"] = f"Bearer {admin_key}"
    opener: OpenerDirector = build_opener(ProxyHandler({}))
    asked = Request(url, json.dumps(body).encode(), headers)
    try:
        with opener.open(asked, timeout=PATIENCE_S) as response:
            return json.load(response)
    except HTTPError as error:
        raise _refusal(url, error) from error
    except (URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(f"url: nobody answers at {url}: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"url: what answers at {url} is no Headway server") from error


def _refusal(url: str, error: HTTPError) -> HeadwayError:
    try:
        told = json.load(error)["error"]
        sentence, code = str(told["message"]), told["code"]
    except (ValueError, KeyError, TypeError):
        return ConfigError(f"url: {url} answers {error.code}; is it a Headway server?")
    if code == "plugin_error":
        return PluginError(sentence)
    return HeadwayError(sentence) if error.code >= 500 else ConfigError(sentence)
