"""Measure whole engine steps of a real runner, so that a latency model can be fitted to them.

A step is timed from planning to delivery: what the scheduler and the text of the answers cost is
in it, as it is in the latencies of a real server. The workload that is built in runs batches of
many sizes and contexts with prompts cut into chunks of many sizes, in random order.
"""

from __future__ import annotations

from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from framework.engine.front import Front
from framework.engine.prompts import Prompt
from framework.errors import bad_field
from framework.protocols import Batch
from framework.sampling import SamplingParams
from framework.study.fitting import Row
from framework.study.workload import FIRST_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from framework.config import SchedulerConfig
    from framework.engine.completion import LiveRequest
    from framework.engine.models import LoadedModel
    from framework.loading import Spec
    from framework.output import SchedulerOutput
    from framework.protocols import Runner

PROMPT_LENGTHS = (32, 128, 512, 2048, 8192)
SMALLEST_CHUNK = 16
NUM_OUTPUTS = 8
"""Outputs of the shortest answer in a phase; the longest has one less than twice as many."""
NUM_TOKEN_IDS = 64
PHASES_PER_ROUND = 25
LEAST_TOKENS = 512


def batch_of(output: SchedulerOutput) -> Batch:
    """The sums of a plan."""
    cached = output.scheduled_cached_reqs
    computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    for new in output.scheduled_new_reqs:
        computed[new.request_id] = new.num_computed_tokens
    total = Batch()
    for name, count in output.num_scheduled_tokens.items():
        total += Batch.of(count, computed[name])
    return total


@define(eq=False)
class _Watched:
    """A runner that remembers the sums of its latest plan."""

    runner: Runner
    batch: Batch = field(factory=Batch)

    def execute(self, output: SchedulerOutput) -> Any:
        """Run one step."""
        self.batch = batch_of(output)
        return self.runner.execute(output)

    def close(self) -> None:
        """Close the runner."""
        self.runner.close()


class MeasuredFront(Front):
    """A front that keeps what each of its steps was and how long it took.

    Args:
        model: as for a front; `async_scheduling` must be off, or steps have no time of their own.
        plugins: the whole stack.

    Raises:
        ConfigError: `async_scheduling` is on.
    """

    def __init__(self, model: LoadedModel, plugins: Sequence[Spec]) -> None:
        if model.config.async_scheduling:
            raise bad_field("async_scheduling", True, "False where steps are measured")
        self._watched = _Watched(model.runner)
        self.rows: list[Row] = []
        super().__init__(evolve(model, runner=self._watched), plugins)

    def step(self) -> list[LiveRequest]:
        """Run one step and time it."""
        start = perf_counter()
        ended = super().step()
        if self._watched.batch.num_tokens:
            self.rows.append(Row(self._watched.batch, perf_counter() - start))
        return ended


@frozen
class Phase:
    """Some requests, and the most tokens of one of them in a step."""

    num_requests: int
    prompt_len: int
    chunk: int


def calibration_phases(config: SchedulerConfig, most_tokens: int) -> list[Phase]:
    """Batch sizes times prompt lengths, as far as limits and `most_tokens` of prompts allow."""
    pool = (config.num_blocks - 1) * config.block_size
    longest = config.max_model_len - 2 * NUM_OUTPUTS
    if longest < 1:
        raise bad_field("max_model_len", config.max_model_len, f"at least {2 * NUM_OUTPUTS + 1}")
    prompts = [*(length for length in PROMPT_LENGTHS if length < longest), longest]
    chunks = [*_doubling(SMALLEST_CHUNK, config.token_budget)]
    found: list[Phase] = []
    for size in _doubling(1, config.num_slots):
        for length in prompts:
            needed = size * (length + 2 * NUM_OUTPUTS + config.block_size)
            if needed <= pool and (size * length <= most_tokens or not found):
                found.append(Phase(size, length, chunks[-1 - len(found) % len(chunks)]))
    if not found:
        raise bad_field("num_blocks", config.num_blocks, "room for a short request")
    return found


def _doubling(first: int, last: int) -> Iterator[int]:
    """first, twice that, ..., and `last`."""
    while first < last:
        yield first
        first *= 2
    yield last


def measure_runner(
    model: LoadedModel,
    *,
    seconds: float = 90.0,
    on_phase: Callable[[int, int], object] | None = None,
) -> list[Row]:
    """Run the calibration workload: one round of phases, and more of them until time is up.

    Args:
        model: with an empty cache; its config gives the largest batch and chunk.
        seconds: how long. A round is cut to about that by the speed of a first batch.
        on_phase: told, after each phase, how many there were and how many there will be.

    Raises:
        ConfigError: the limits are too small, or steps overlap.
    """
    random = Random(model.config.seed)
    start = perf_counter()
    warm_up = calibration_phases(model.config, LEAST_TOKENS)
    num_tokens = sum(row.batch.num_tokens for row in _play(model, warm_up[-1], random))
    speed = num_tokens / (perf_counter() - start)
    phases = calibration_phases(
        model.config, max(LEAST_TOKENS, int(speed * seconds / PHASES_PER_ROUND))
    )
    rows: list[Row] = []
    number, start = 0, perf_counter()
    while number < len(phases) or perf_counter() - start < seconds:
        if not number % len(phases):
            random.shuffle(phases)
        rows += _play(model, phases[number % len(phases)], random)
        number += 1
        if on_phase is not None:
            expected = int(number * seconds / (perf_counter() - start))
            on_phase(number, max(number, len(phases), expected))
    return rows


def _play(model: LoadedModel, phase: Phase, random: Random) -> list[Row]:
    """One phase: half of its requests come when the others decode, so that steps are mixed too."""
    chunked = f"chunked_prefill(cap={phase.chunk},lone_exempt=False)"
    stack = ["kv_blocks(enable_prefix_caching=False)", chunked, "fcfs"]
    prompts = [_prompt(phase, number, random) for number in range(phase.num_requests)]
    num_early = (phase.num_requests + 1) // 2
    with MeasuredFront(model, stack) as front:
        lives = [front.submit(prompt) for prompt in prompts[:num_early]]
        while any(live.timeline.first_token is None for live in lives):
            front.step()
        lives += [front.submit(prompt) for prompt in prompts[num_early:]]
        front.run(lives)
        rows = front.rows
        front.drain()
    return rows


def _prompt(phase: Phase, number: int, random: Random) -> Prompt:
    """Up to a quarter shorter than planned, so that sizes vary."""
    length = max(1, int(phase.prompt_len * random.uniform(0.75, 1.0)))
    count = NUM_OUTPUTS + number % NUM_OUTPUTS
    return Prompt(
        prompt_token_ids=[FIRST_TOKEN + random.randrange(NUM_TOKEN_IDS)] * length,
        sampling_params=SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True),
    )
