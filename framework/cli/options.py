"""Options that several subcommands share, and the records they are gathered into."""

from __future__ import annotations

import errno
import logging
import os
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from attrs import field, frozen

from framework.engine.models import RUNNERS
from framework.engine.settings import EngineSettings
from framework.errors import bad_field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Command = TypeVar("Command", bound="Callable[..., Any]")
WITHOUT_MODELS = ("simulated",)
"""Runners that load no model; `--workload` brings them itself."""


@frozen(kw_only=True)
class Limits:
    """Limits of the scheduler as given on the command line."""

    num_blocks: int | None
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int | None
    num_spec_tokens: int | None
    async_scheduling: bool
    seed: int


def _loads_models(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if value in WITHOUT_MODELS:
        names = {entry.name for entry in entry_points(group=RUNNERS)} - set(WITHOUT_MODELS)
        allowed = f"a runner that loads models: {', '.join(sorted(names))}"
        raise bad_field(attribute.name, value, allowed)


@frozen(kw_only=True)
class Loading:
    """Which model, and how it is run."""

    model: str
    dtype: str | None
    device: str | None
    threads: int | None
    runner: str = field(validator=_loads_models)


@frozen(kw_only=True)
class Sampling:
    """Sampling fields for prompts that do not bring their own."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    stop: tuple[str, ...]
    logprobs: int | None
    ignore_eos: bool


_LIMITS = (
    click.option(
        "--num-blocks", type=int, help="KV blocks.  [default: what fits on the GPU, else 1024]"
    ),
    click.option("--block-size", type=int, default=16, show_default=True, help="Tokens a block."),
    click.option(
        "--max-num-seqs",
        type=int,
        default=64,
        help="Most running requests.  [default: 64; in virtual time 256]",
    ),
    click.option(
        "--max-num-batched-tokens",
        type=int,
        default=512,
        help="Token budget of one step.  [default: 512; in virtual time 2048]",
    ),
    click.option(
        "--max-model-len",
        type=int,
        help="Most tokens of a request, prompt and output.  [default: the model's own]",
    ),
    click.option(
        "--num-spec-tokens",
        type=int,
        help="Most drafts a request and step.  [default: 4 if the stack proposes drafts, else 0]",
    ),
    click.option("--async-scheduling", is_flag=True, help="Plan one step ahead of the outputs."),
    click.option("--seed", type=int, default=0, show_default=True, help="Of all random streams."),
)
_MODEL = click.option(
    "--model",
    default="smollm2",
    show_default=True,
    metavar="M",
    help="A name that `headway models` lists, or a model directory.",
)
_RUNNING = (
    click.option(
        "--dtype", help="float32, bfloat16 or float16.  [default: the runner's; torch: float32]"
    ),
    click.option("--device", help="What the runner computes on.  [default: the runner's choice]"),
    click.option("--threads", type=int, help="CPU threads.  [default: the runner's choice]"),
    click.option(
        "--runner", default="torch", show_default=True, help="torch (CPU) or triton (GPU)."
    ),
)
_SAMPLING = (
    click.option(
        "--max-tokens", type=int, default=128, show_default=True, help="Most output tokens."
    ),
    click.option("--temperature", type=float, default=0.0, show_default=True, help="0 = greedy."),
    click.option("--top-k", type=int, default=0, show_default=True, help="0 = all tokens."),
    click.option("--top-p", type=float, default=1.0, show_default=True, help="In (0, 1]."),
    click.option("--stop", multiple=True, metavar="TEXT", help="End the output before TEXT."),
    click.option("--logprobs", type=int, help="Report so many likeliest tokens (in --json)."),
    click.option("--ignore-eos", is_flag=True, help="Go on past the end-of-sequence token."),
)


def limit_options(command: Command) -> Command:
    """Add the options of `Limits`."""
    return apply_options(_LIMITS, command)


def loading_options(command: Command) -> Command:
    """Add the options of `Loading`."""
    return apply_options((_MODEL, *_RUNNING), command)


def running_options(command: Command) -> Command:
    """Add the options of `Loading` but for the model, which is an argument."""
    return apply_options(_RUNNING, command)


def sampling_options(command: Command) -> Command:
    """Add the options of `Sampling`."""
    return apply_options(_SAMPLING, command)


def common_options(command: Command) -> Command:
    """Add what every subcommand has: --json and -v."""
    options = (
        click.option(
            "--json",
            "json_path",
            type=click.Path(path_type=Path),
            callback=writable,
            metavar="FILE",
            help="Also write the result as JSON.",
        ),
        click.option(
            "-v", "--verbose", count=True, expose_value=False, callback=_log, help="Log to stderr."
        ),
    )
    return apply_options(options, command)


def gather(record: type[Any], options: dict[str, Any]) -> Any:
    """Take a record's fields out of the options of a subcommand."""
    return record(**{field.name: options.pop(field.name) for field in attrs.fields(record)})


def settings_for(loading: Loading, plugins: Sequence[str], limits: Limits) -> EngineSettings:
    """What an engine is opened with."""
    return EngineSettings(
        model=loading.model,
        plugins=tuple(plugins),
        dtype=loading.dtype,
        device=loading.device,
        runner=loading.runner,
        num_threads=loading.threads,
        **attrs.asdict(limits),
    )


def apply_options(options: tuple[Callable[[Any], Any], ...], command: Command) -> Command:
    """Add options in the order of the help page."""
    for option in reversed(options):
        command = option(command)
    return command


def writable(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Better to hear now than after minutes of work."""
    if path is None:
        return None
    folder = path.resolve().parent
    if path.is_dir() or not folder.is_dir():
        raise click.BadParameter(f"{path}: its folder does not exist, or it is one itself")
    try:
        if path.is_file() or not path.exists():
            tempfile.TemporaryFile(dir=folder).close()
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        told = (
            f"{path}: it cannot be written: {error.strerror}; allowed: a file in a folder of yours"
        )
        raise click.BadParameter(told) from error
    return path


def _log(_: click.Context, __: click.Parameter, verbosity: int) -> None:
    logger = logging.getLogger("headway")
    logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        logger.addHandler(handler)
