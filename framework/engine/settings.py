"""EngineSettings: all that it takes to open a model under a stack, here or in another process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from framework.engine.models import LoadedModel, limits_for, load_model, resolve_model
from framework.stack import build_manager, complete_stack, implemented_hooks, load_plugin

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from framework.loading import Spec

DEFAULT_NUM_DRAFTS: Final = 4
DEFAULT_NUM_SEQS: Final = 64
DEFAULT_BUDGET: Final = 512


@frozen(kw_only=True)
class EngineSettings:
    """What to load and under which limits; the fields are the arguments that `LLM` describes."""

    model: str | Path
    plugins: Sequence[Spec] = ()
    dtype: str | None = None
    device: str | None = None
    num_blocks: int | None = None
    block_size: int = 16
    max_num_seqs: int = DEFAULT_NUM_SEQS
    max_num_batched_tokens: int = DEFAULT_BUDGET
    max_model_len: int | None = None
    num_spec_tokens: int | None = None
    async_scheduling: bool = False
    runner: str = "torch"
    num_threads: int | None = None
    seed: int = 0

    def open(self) -> tuple[LoadedModel, list[Spec]]:
        """The model in memory, and the whole stack.

        Raises:
            ModelError, PluginError, ConfigError: something named here cannot be used.
        """
        stack = complete_stack(self.plugins)
        build_manager(stack)  # a bad stack is told before the model is loaded
        directory = resolve_model(self.model)
        config = limits_for(directory, self._limits(stack))
        loaded = load_model(
            directory,
            config,
            runner=self.runner,
            dtype=self.dtype,
            device=self.device,
            num_threads=self.num_threads,
        )
        fitting = None if self.num_blocks is not None else loaded.num_blocks_that_fit()
        if fitting is not None:
            loaded = loaded.under(evolve(config, num_blocks=fitting))
        return loaded, stack

    def _limits(self, stack: Sequence[Spec]) -> dict[str, int | bool | None]:
        num_drafts = self.num_spec_tokens
        if num_drafts is None:
            num_drafts = DEFAULT_NUM_DRAFTS if proposes_drafts(stack) else 0
        return {
            "num_blocks": self.num_blocks,
            "block_size": self.block_size,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_model_len": self.max_model_len,
            "num_spec_tokens": num_drafts,
            "async_scheduling": self.async_scheduling,
            "seed": self.seed,
        }


def proposes_drafts(stack: Sequence[Spec]) -> bool:
    """Whether a plugin of the stack makes drafts."""
    return any("propose_drafts" in implemented_hooks(load_plugin(spec)) for spec in stack)
