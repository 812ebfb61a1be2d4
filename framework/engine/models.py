"""Models and runners by name: entry points, directories, and a model ready to serve."""

from __future__ import annotations

import json
import logging
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve

from framework.config import SchedulerConfig
from framework.engine.tokenizer import HuggingFaceTokenizer
from framework.errors import ModelError, PluginError, bad_field, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from framework.engine.tokenizer import Tokenizer
    from framework.protocols import Runner

MODELS: Final = "headway.models"
RUNNERS: Final = "headway.runners"
DEFAULT_NUM_BLOCKS: Final = 1024
log = logging.getLogger("headway.models")


def resolve_model(name_or_directory: str | Path) -> Path:
    """The directory of a model.

    Args:
        name_or_directory: a name of the entry-point group `headway.models`, or a directory with
            a `config.json`. An existing directory goes before a name.

    Raises:
        ModelError: it is neither, or the named model cannot be provided.
    """
    path = Path(name_or_directory)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{path}: not a model directory: it has no config.json")
        return path
    if path.exists():
        raise ModelError(f"{path}: not a model directory: it is a file")
    name = str(name_or_directory)
    known = {entry.name: entry for entry in entry_points(group=MODELS)}
    if name in known:
        return _provide(known[name])
    raise ModelError(
        f"model {name!r}: no such directory, and no such name; names: "
        f"{', '.join(sorted(known)) or 'none installed'}.{did_you_mean(name, known)}"
    )


def list_models() -> list[tuple[str, Path | ModelError]]:
    """(name, directory or why there is none) of every installed model name, sorted by name."""
    found: list[tuple[str, Path | ModelError]] = []
    for entry in sorted(entry_points(group=MODELS), key=lambda entry: entry.name):
        try:
            found.append((entry.name, _provide(entry)))
        except ModelError as error:
            found.append((entry.name, error))
    return found


def _provide(entry: EntryPoint) -> Path:
    try:
        provide: Callable[[], str | Path] = entry.load()
        directory = Path(provide())
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"model {entry.name!r} ({entry.value}): {error}") from error
    if not (directory / "config.json").is_file():
        raise ModelError(f"model {entry.name!r}: {directory} has no config.json")
    return directory


def runner_class(name: str) -> Any:
    """The runner installed under a name of the entry-point group `headway.runners`.

    Raises:
        PluginError: there is none, or it cannot be imported.
    """
    known = {entry.name: entry for entry in entry_points(group=RUNNERS)}
    if name not in known:
        raise PluginError(
            f"runner {name!r}: no such runner; installed: "
            f"{', '.join(sorted(known)) or 'none'}.{did_you_mean(name, known)}"
        )
    try:
        return known[name].load()
    except ImportError as error:
        raise PluginError(
            f"runner {name!r} cannot be imported: {error}; install headway[{name}]"
        ) from error


@define(eq=False)
class LoadedModel:
    """A model in memory, ready for one scheduler after another.

    Attributes:
        runner: executes plans.
        tokenizer: text to tokens and back, or None.
        config: the limits that the runner was built for.
        directory: where it came from, or None.
        eos_token_ids: tokens that end an output.
    """

    runner: Runner
    tokenizer: Tokenizer | None
    config: SchedulerConfig
    directory: Path | None = None
    eos_token_ids: Sequence[int] = ()

    @property
    def dtype(self) -> str | None:
        """What the runner computes in, if it tells."""
        return getattr(self.runner, "dtype", None)

    def num_blocks_that_fit(self) -> int | None:
        """KV blocks for the runner's device, if it can tell.

        Raises:
            ModelError: there is no room for any.
        """
        ask = getattr(self.runner, "num_blocks_that_fit", None)
        found: int | None = None if ask is None else ask()
        return found

    def under(self, config: SchedulerConfig) -> LoadedModel:
        """The same weights under other limits, with an empty cache if the runner can make one."""
        fresh = getattr(self.runner, "fresh", None)
        runner = self.runner if fresh is None else fresh(config)
        return evolve(self, runner=runner, config=config)


def _hide_bars() -> None:
    """Weights of a few seconds need no bar of their own, least of all between our lines."""
    if find_spec("transformers") is not None:
        bars: Any = import_module("transformers.utils.logging")
        bars.disable_progress_bar()


def model_length(directory: Path) -> int | None:
    """`max_position_embeddings` of a model directory, or None if it names none.

    Raises:
        ModelError: config.json cannot be read.
    """
    try:
        fields = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{directory}: config.json cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise ModelError(f"{directory}: config.json: got {fields!r}, allowed: a JSON object")
    text = fields.get("text_config")
    length = (text if isinstance(text, dict) else fields).get("max_position_embeddings")
    return length if type(length) is int else None


def limits_for(directory: Path, limits: Mapping[str, Any]) -> SchedulerConfig:
    """The limits, with defaults for what is missing or None.

    `max_model_len` is the model's own then, and `num_blocks` 1024.

    Raises:
        ConfigError: a limit is wrong, or longer than the model.
    """
    fields = dict(limits)
    if fields.get("num_blocks") is None:
        fields["num_blocks"] = DEFAULT_NUM_BLOCKS
    longest = model_length(directory)
    given = fields.pop("max_model_len", None)
    if given is None and longest is not None:
        given = longest
    config = SchedulerConfig.from_mapping(
        fields if given is None else {**fields, "max_model_len": given}
    )
    if longest is not None and config.max_model_len > longest:
        raise bad_field("max_model_len", given, f"at most the model's own {longest}")
    return config


def load_model(
    directory: Path,
    config: SchedulerConfig,
    *,
    runner: str = "torch",
    dtype: str | None = None,
    device: str | None = None,
    num_threads: int | None = None,
) -> LoadedModel:
    """Load weights and tokenizer.

    Args:
        directory: a model directory, as `resolve_model` gives it.
        config: the limits; `config.seed` also seeds the runner.
        runner: a name of the entry-point group `headway.runners`.
        dtype: what the runner computes in, such as "float32" or "bfloat16"; None = its choice.
        device: what the runner computes on; None = its choice.
        num_threads: CPU threads, or None for the runner's own choice.

    Raises:
        ModelError: the directory or architecture cannot be used.
        PluginError: there is no such runner.
    """
    made_by = runner_class(runner)
    if not hasattr(made_by, "from_model"):
        raise PluginError(f"runner {runner!r} loads no model; torch, triton and scripted do")
    _hide_bars()
    chosen = {"dtype": dtype, "device": device}
    made = made_by.from_model(
        directory,
        config,
        num_threads=num_threads,
        seed=config.seed,
        **{name: value for name, value in chosen.items() if value is not None},
    )
    log.info("loaded %s into runner %s %s", directory, runner, chosen)
    return LoadedModel(
        made, HuggingFaceTokenizer(directory), config, directory, tuple(made.eos_token_ids)
    )
