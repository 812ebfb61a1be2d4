"""`headway serve`: an OpenAI-compatible server over a model in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import click

from framework.cli.app import INTERRUPTED
from framework.cli.config_file import config_option
from framework.cli.options import (
    Limits,
    Loading,
    apply_options,
    common_options,
    gather,
    limit_options,
    running_options,
    settings_for,
)
from framework.cli.report import headline, write_json
from framework.errors import ConfigError
from framework.server.admin_key import left_in_file, make_key
from framework.server.room import warn_if_short
from framework.server.signals import signals_caught
from framework.server.warmup import warm_up

if TYPE_CHECKING:
    from pathlib import Path

    from framework.engine.client import AsyncEngine
    from framework.engine.settings import EngineSettings
    from framework.server.serving import Listening
    from framework.server.settings import ServerSettings


def _even_if_empty(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A variable that is there and empty was meant to be a key; click takes it for none."""
    is_there = isinstance(option.envvar, str) and option.envvar in os.environ
    return "" if value is None and is_there else value


LISTENING = (
    click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen."),
    click.option("--port", type=int, default=8000, show_default=True, help="0 = a free one."),
    click.option(
        "--drain-s",
        type=float,
        default=10.0,
        show_default=True,
        help="Seconds that running requests have after SIGTERM or Ctrl-C.",
    ),
)
SERVING = (
    click.option(
        "--served-model-name",
        "model_names",
        multiple=True,
        metavar="NAME",
        help="What clients call the model; may be repeated.  [default: MODEL]",
    ),
    click.option(
        "--api-key",
        callback=_even_if_empty,
        envvar="HEADWAY_API_KEY",
        show_envvar=True,
        metavar="KEY",
        help="What clients must bring, for all but /health.  [default: nothing]",
    ),
    click.option(
        "--cors-origin",
        "cors_origins",
        multiple=True,
        metavar="URL",
        help="A web page that may ask, such as https://chat.example; may be repeated.",
    ),
    click.option(
        "--admin-key",
        callback=_even_if_empty,
        envvar="HEADWAY_ADMIN_KEY",
        show_envvar=True,
        metavar="KEY",
        help="What admin calls must bring.  [default: made, in a file that `headway swap` reads]",
    ),
    click.option(
        "--max-body-bytes", type=int, default=8 << 20, show_default=True, help="Longest request."
    ),
    click.option(
        "--max-queue",
        type=int,
        default=1024,
        show_default=True,
        help="Most unfinished requests; more are told to come back (429).",
    ),
    click.option(
        "--max-output-tokens",
        type=int,
        help="Most output tokens, whatever max_tokens says.  [default: what fits]",
    ),
    click.option(
        "--max-per-tenant",
        type=int,
        help="Most unfinished requests of one `user` (429).  [default: no limit]",
    ),
)


@click.command(
    "serve", epilog="Example: headway serve smollm2 --plugin priority --port 8000 --max-queue 256"
)
@click.argument("model", default="smollm2", metavar="[MODEL]")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="SPEC",
    help="name, name(option=value), module:attribute or file.py:Name; the last is asked first.",
)
@lambda command: apply_options((*LISTENING, *SERVING), command)
@click.option("--restart", is_flag=True, help="Start a new engine when its process dies.")
@config_option
@running_options
@limit_options
@common_options
def command(
    model: str, plugins: tuple[str, ...], restart: bool, json_path: Path | None, **options: Any
) -> int:
    """Serve MODEL to OpenAI's clients: completions and chat completions, streaming or not.

    MODEL is a name that `headway models` lists, or a model directory.  [default: smollm2]

    Prints `listening on URL` once it accepts connections; --json writes URL and process id as well.
    `headway swap` changes the plugins while it runs. SIGTERM and Ctrl-C let running requests end.
    If the engine dies, the server ends with status 1, unless --restart is given.
    """
    serving, settings_of = _server_modules()
    limits = gather(Limits, options)
    loading = Loading(model=model, **{name: options.pop(name) for name in RUNNING})
    listening = serving.Listening(**{name: options.pop(name) for name in LISTENING_NAMES})
    names = options.pop("model_names") or (model,)
    settings = settings_of.ServerSettings(model_names=tuple(names), restarts=restart, **options)
    _warn(serving.warn_if_open(listening, settings))
    # Engine and front share the CPUs: threads that wait for one another must not spin meanwhile.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    engine_settings = settings_for(loading, plugins, limits)
    caught = asyncio.run(_serve(engine_settings, settings, listening, json_path))
    return INTERRUPTED if caught == signal.SIGINT else 0


RUNNING = ("dtype", "device", "threads", "runner")
LISTENING_NAMES = ("host", "port", "drain_s")


async def _serve(
    engine_settings: EngineSettings,
    settings: ServerSettings,
    listening: Listening,
    json_path: Path | None,
) -> int | None:
    serving, _ = _server_modules()
    with serving.bind(listening) as bound, signals_caught() as signals, ExitStack() as stack:
        if settings.admin_key is None:
            settings = _with_own_key(settings, bound.getsockname()[1], stack)
        starting = asyncio.create_task(_start(engine_settings, settings))
        signals.tell(partial(_give_up, starting))
        try:
            engine = await starting
        except asyncio.CancelledError:
            return signals.first
        try:
            _warn(warn_if_short(engine.info))

            def announce(url: str) -> None:
                told = {"url": url, "pid": os.getpid(), "models": list(settings.model_names)}
                line = f"listening on {url}"
                write_json(json_path, {"headline": line, **told})
                headline(line)

            caught: int | None = await serving.serve(
                engine, settings, listening, bound, signals=signals, announce=announce
            )
        finally:
            await engine.close()
    return caught


async def _start(engine_settings: EngineSettings, settings: ServerSettings) -> AsyncEngine:
    """An engine that has answered once."""
    from framework.engine.client import AsyncEngine  # noqa: PLC0415  (needs the extra `serve`)

    _tell(f"loading {engine_settings.model} into the {engine_settings.runner} runner")
    engine = await AsyncEngine.start(engine_settings, restart=settings.restarts)
    info = engine.info
    _tell(
        f"stack {'+'.join(info.plugins)}; {info.num_blocks} KV blocks of {info.block_size} tokens; "
        f"{info.max_num_seqs} running requests, {info.max_num_batched_tokens} tokens a step at most"
    )
    try:
        await warm_up(engine)
    except BaseException:
        await engine.close()
        raise
    return engine


def _give_up(starting: asyncio.Task[AsyncEngine], _: int) -> None:
    """Once: what then closes is not cancelled a second time."""
    if not starting.cancelling():
        starting.cancel()


def _with_own_key(settings: ServerSettings, port: int, stack: ExitStack) -> ServerSettings:
    """The settings with an admin key that this user's `headway swap` finds until the stack ends."""
    key = make_key()
    try:
        stack.enter_context(left_in_file(key, port))
    except ConfigError as error:
        _warn(f"there are no admin calls: {error}")
        return settings
    return attrs.evolve(settings, admin_key=key)


def _tell(sentence: str) -> None:
    click.echo(f"headway: {sentence}", err=True)


def _warn(sentence: str | None) -> None:
    if sentence is not None:
        click.echo(f"headway: warning: {sentence}", err=True)


def _server_modules() -> Any:
    """The modules that need the extra `serve`; --help and other commands do without."""
    try:
        from framework.server import serving, settings  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"serve needs the package {error.name!r}: pip install 'headway[serve]'"
        ) from error
    return serving, settings
