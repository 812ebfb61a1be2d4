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
from framework.stack import parse_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_S = 60


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
    "--api-key",
    envvar="HEADWAY_API_KEY",
    show_envvar=True,
    metavar="KEY",
    help="The server's key, if it has one.",
)
@common_options
def command(stack: str, url: str, api_key: str | None, json_path: Path | None) -> int:
    """Change the plugins of a running server between two of its steps.

    STACK is one+another, the last is asked first. Requests that wait or run are carried over. A
    stack that fails its check leaves the old one in place: exit status 2.
    """
    specs = [with_absolute_path(spec) for spec in parse_stack(stack)]
    answer = _post(f"{_checked(url)}/admin/swap", {"plugins": specs}, api_key)
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
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise bad_field("url", url, "http://HOST:PORT")
    return url.rstrip("/")


def _post(url: str, body: dict[str, Any], api_key: str | None) -> Any:
    """The JSON that comes back.

    Raises:
        PluginError: the server refuses the stack.
        ConfigError: it is not there, or refuses the caller.
        HeadwayError: it failed.
    """
    headers = {"Content-Type": "application/json"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
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
