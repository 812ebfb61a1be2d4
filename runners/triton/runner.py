"""TritonRunner: executes plans with a transformers model and our own kernels, on a GPU.

One step: one copy to the device, the forward pass (a captured graph where every request has one
token), sampling, one copy back. With async scheduling the host waits for none of it: the next
step takes its tokens from the device, and their ids arrive one step late. On the CPU, for tests,
all of it runs in Triton's interpreter.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from attrs import define

from framework import RunnerOutput, SchedulerConfig, SchedulerOutput
from runners.common.batch import flatten
from runners.common.facts import ModelFacts
from runners.common.routing import attach
from runners.common.state import RequestStates, ScheduledRow, remember
from runners.triton.cache import PagedCache
from runners.triton.devices import current
from runners.triton.feed import Feed, Step
from runners.triton.graphs import DecodeGraphs
from runners.triton.known import UNKNOWN
from runners.triton.late import LateOutput
from runners.triton.loading import load_model
from runners.triton.memory import num_blocks_that_fit
from runners.triton.sampler import Sampler
from runners.triton.transfers import Transfers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from runners.triton.inputs import StepInputs


@define(eq=False)
class _Pending:
    """A step whose tokens are on their way, and the token lists they go into."""

    late: LateOutput
    output: SchedulerOutput
    rows: list[ScheduledRow]
    holes: list[tuple[list[int], int] | None]


class TritonRunner(ModelFacts):
    """Runs flat batches through a causal LM on a GPU.

    Args:
        model: accepted by `loading.accept`.
        config: the scheduler's limits.
        seed: of requests that bring none.
    """

    def __init__(self, model: PreTrainedModel, config: SchedulerConfig, *, seed: int = 0) -> None:
        self.model = model
        self.config = config
        device = torch.device(model.device)
        self.states = RequestStates(seed)
        self.cache = PagedCache(config.num_blocks, config.block_size, model.dtype, device)
        self.feed = Feed(config, device)
        self.sampler = Sampler(config, device)
        self.transfers = Transfers(self.cache)
        self.graphs = DecodeGraphs(self._forward, device)
        self._pending: deque[_Pending] = deque()
        self._overlaps = config.async_scheduling and not config.num_spec_tokens

    @classmethod
    def from_model(
        cls,
        directory: Path,
        config: SchedulerConfig,
        *,
        dtype: str = "bfloat16",
        device: str = "cuda",
        num_threads: int | None = None,
        seed: int = 0,
    ) -> TritonRunner:
        """Load a local model directory.

        Args:
            directory: of a Hugging Face model.
            config: the scheduler's limits.
            dtype: "float32", "bfloat16" or "float16".
            device: "cuda", "cuda:N", or "cpu" with TRITON_INTERPRET=1.
            num_threads: not used; the work is the device's.
            seed: of requests that bring none.

        Raises:
            ModelError: no model directory, its architecture cannot run, or there is no device.
        """
        del num_threads
        return cls(load_model(Path(directory), dtype, device), config, seed=seed)

    def num_blocks_that_fit(self) -> int | None:
        """KV blocks for the free memory of the GPU, under this runner's other limits.

        Raises:
            ModelError: there is no room for any.
        """
        return num_blocks_that_fit(self.model, self.config)

    def fresh(self, config: SchedulerConfig) -> TritonRunner:
        """A runner with the same weights and an empty cache; one of them may run at a time."""
        return TritonRunner(self.model, config, seed=self.states.seed)

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> RunnerOutput | LateOutput:
        """Start one step; in async mode its output is a future, else it is waited for."""
        with current(self.cache.device):
            return self._execute(output)

    def close(self) -> None:
        """Wait for what runs, and let cache and graphs go. Runners that share the model go on."""
        while self._pending:
            self._pending.popleft().late.exception()
        self.graphs = DecodeGraphs(self._forward, self.cache.device)
        self.transfers.clear()
        self.cache.clear()

    def _execute(self, output: SchedulerOutput) -> RunnerOutput | LateOutput:
        started = time.perf_counter()
        self._settle(leave=1 if self._overlaps else 0)
        self.feed.forget(output)
        rows = self.states.apply(output)
        received, sent = self.transfers.run(output)
        result = RunnerOutput([], finished_recving=received, finished_sending=sent)
        if not rows:
            result.duration_s = time.perf_counter() - started
            return result
        late = self._launch(output, rows, result, started)
        if self.config.async_scheduling:
            return late
        self._settle(leave=0)
        return late.result()

    def _launch(
        self,
        output: SchedulerOutput,
        rows: list[ScheduledRow],
        result: RunnerOutput,
        started: float,
    ) -> LateOutput:
        """Queue a whole step on the device."""
        batch = flatten(rows, self.config.block_size)
        table_rows = self.feed.rows_of(rows)
        step = self.feed.send(batch, table_rows, self.sampler.fields(output, rows, table_rows))
        logits = self._logits(step, len(batch.logits_rows))
        drawn = self.sampler.draw(output, rows, logits, step, self.feed.last_tokens)
        if self._overlaps:
            self.feed.keep_last(step, drawn.tokens[:, 0])

        def finish() -> RunnerOutput:
            result.sampled_token_ids, logprobs = drawn.to_host()
            result.logprobs = logprobs or None
            result.duration_s = time.perf_counter() - started
            return result

        pending = _Pending(LateOutput(finish), output, rows, [])
        if self._overlaps:
            pending.holes = [_leave_hole(row) for row in rows]
        self._pending.append(pending)
        return pending.late

    def _settle(self, *, leave: int) -> None:
        """Wait for the tokens of all steps but the newest, and note them."""
        while len(self._pending) > leave:
            pending = self._pending.popleft()
            sampled = pending.late.result().sampled_token_ids
            if self._overlaps:
                for hole, tokens in zip(pending.holes, sampled, strict=True):
                    if hole is not None:
                        known, index = hole
                        known[index] = tokens[0]
            else:
                proposes = self.config.async_scheduling and self.config.num_spec_tokens > 0
                remember(pending.output, pending.rows, sampled, proposes=proposes)

    def _logits(self, step: Step, num_positions: int) -> torch.Tensor:
        """[L, V], of the positions that a token is drawn for."""
        attach(self.model, self.cache)
        if step.size is None:
            return self._forward(step.inputs, step.logits_rows)[:num_positions]
        logits = self.graphs.run(step.inputs)
        if num_positions == len(step.table_rows):
            return logits[:num_positions]
        return logits[step.logits_rows[:num_positions]]

    def _forward(self, inputs: StepInputs, needed: torch.Tensor | None = None) -> torch.Tensor:
        """[needed, V], or of all tokens."""
        self.cache.inputs = inputs
        logits: torch.Tensor = self.model(
            input_ids=inputs.input_ids[None],
            position_ids=inputs.positions[None],
            use_cache=False,
            logits_to_keep=0 if needed is None else needed,
        ).logits
        return logits[0]


def _leave_hole(row: ScheduledRow) -> tuple[list[int], int] | None:
    """Room for the token that a row samples: where it will be noted."""
    if not row.samples:
        return None
    known = row.state.token_ids
    row.state.append([UNKNOWN])
    return known, len(known) - 1
