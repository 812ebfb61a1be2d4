"""TorchRunner: executes plans with a transformers model and a paged cache, on the CPU."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from framework import ConnectorMetadata, ModelError, RunnerOutput, SchedulerConfig, SchedulerOutput
from runners.common.batch import FlatBatch, flatten
from runners.common.facts import ModelFacts
from runners.common.grammar import obey
from runners.common.routing import attach
from runners.common.sampling import sample
from runners.common.state import RequestStates, remember
from runners.torch_paged.attention import PagedCache
from runners.torch_paged.loading import load_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_PRODUCTS = "32"
"""Compiled products that oneDNN keeps; as fast as with 1,024 on 40 prompts of the small model."""


class TorchRunner(ModelFacts):
    """Runs flat batches through a causal LM; the truth that other runners are compared with.

    Args:
        model: accepted by `loading.accept`.
        config: the scheduler's; blocks, block size and async mode count here.
        num_threads: of torch; None = one a core.
        seed: of requests that bring none.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: SchedulerConfig,
        *,
        num_threads: int | None = None,
        seed: int = 0,
    ) -> None:
        torch.set_num_threads(num_threads or len(os.sched_getaffinity(0)))
        self.model = model
        self.config = config
        self.states = RequestStates(seed)
        self.cache = PagedCache(config.num_blocks, config.block_size, model.dtype)
        self._external: dict[bytes, list[torch.Tensor]] = {}

    @classmethod
    def from_model(
        cls,
        directory: Path,
        config: SchedulerConfig,
        *,
        dtype: str = "float32",
        device: str = "cpu",
        num_threads: int | None = None,
        seed: int = 0,
    ) -> TorchRunner:
        """Load a local model directory.

        Raises:
            ModelError: it is no model directory, or its architecture cannot run.
        """
        if device != "cpu":
            raise ModelError(f"device: got {device!r}, allowed: 'cpu'")
        # A product is compiled for each count of rows, and a server sees hundreds of them: with
        # the default of 1,024 its memory fills for minutes. Set before the first product is made.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", MOST_PRODUCTS)
        return cls(load_model(Path(directory), dtype), config, num_threads=num_threads, seed=seed)

    def fresh(self, config: SchedulerConfig) -> TorchRunner:
        """A runner with the same weights and an empty cache; one of them may run at a time."""
        return TorchRunner(
            self.model, config, num_threads=torch.get_num_threads(), seed=self.states.seed
        )

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        """Run one step: transfers, then the forward pass, then sampling."""
        started = time.perf_counter()
        rows = self.states.apply(output)
        received, sent = self._transfer(output)
        result = RunnerOutput([], finished_recving=received, finished_sending=sent)
        if rows:
            batch = flatten(rows, self.config.block_size)
            grammar = partial(obey, output=output, rows=rows)
            result.sampled_token_ids, logprobs = sample(rows, self._forward(batch), adjust=grammar)
            result.logprobs = logprobs or None
            proposes = self.config.async_scheduling and self.config.num_spec_tokens > 0
            remember(output, rows, result.sampled_token_ids, proposes=proposes)
        result.duration_s = time.perf_counter() - started
        return result

    def close(self) -> None:
        """Let the cache go. Runners that share the model go on."""
        self._external.clear()
        self.cache.clear()

    def _forward(self, batch: FlatBatch) -> torch.Tensor:
        """[L, V] logits of the rows that are needed."""
        attach(self.model, self.cache)
        self.cache.begin(batch)
        needed = torch.from_numpy(batch.logits_rows)
        if not len(needed):
            needed = torch.zeros(1, dtype=torch.int64)
        out = self.model(
            input_ids=torch.from_numpy(batch.input_ids)[None],
            position_ids=torch.from_numpy(batch.positions)[None],
            use_cache=False,
            logits_to_keep=needed,
        )
        logits: torch.Tensor = out.logits[0]
        return logits[: len(batch.logits_rows)]

    def _transfer(self, output: SchedulerOutput) -> tuple[list[str], list[str]]:
        """Stores, zeroing, loads, drops, in this order."""
        metadata: ConnectorMetadata | None = output.connector_metadata
        tensors = self.cache.tensors()
        if output.drop_kept:
            self._external.clear()
        if metadata is not None:
            for name, block in metadata.stores:
                self._external[name] = [tensor[block].clone() for tensor in tensors]
        for block in output.new_block_ids_to_zero:
            for tensor in tensors:
                tensor[block] = 0
        if metadata is None:
            return [], []
        for name, block in metadata.loads:
            for tensor, kept in zip(tensors, self._external[name], strict=True):
                tensor[block] = kept
        for name in metadata.drop:
            self._external.pop(name, None)
        return list(metadata.receiving), list(metadata.sending)
