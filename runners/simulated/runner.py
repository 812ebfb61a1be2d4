"""SimulatedRunner: knows when each request will end, and says how long each step takes.

It samples FILL until a request's own last token, END. The length it was told never reaches the
scheduler, so no policy can see it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from attrs import define, field

from framework import Batch, LatencyModel, RunnerError, RunnerOutput, VirtualClock

if TYPE_CHECKING:
    from framework import SchedulerConfig, SchedulerOutput

FILL = 2
END = 1
_FILLED = [FILL]
_ENDED = [END]
_NOTHING: list[int] = []


@define(eq=False)
class SimulatedRunner:
    """Runs plans in virtual time.

    Args:
        config: the scheduler's limits.
        latency: how long a step takes.
        clock: moved by each step; the scheduler's too.
        acceptance: chance that a draft is right, if those before it are.
        link_bytes_per_s: between the cache and external memory; a step waits for its copies.
        kv_bytes_per_token: of the cache, for those copies.
        noise: standard deviation of the logarithm of a factor on each step; 0 = none.
        seed: of noise and drafts.
    """

    config: SchedulerConfig
    latency: LatencyModel
    clock: VirtualClock = field(factory=VirtualClock)
    acceptance: float = field(default=0.7, kw_only=True)
    link_bytes_per_s: float = field(default=25e9, kw_only=True)
    kv_bytes_per_token: int = field(default=131_072, kw_only=True)
    noise: float = field(default=0.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    eos_token_ids: tuple[int, ...] = field(default=(END,), init=False)
    _output_lens: dict[str, int] = field(factory=dict, init=False)
    _last: dict[str, int] = field(factory=dict, init=False)
    """Tokens of a request, prompt and outputs, before its last one."""
    _partial: dict[str, int] = field(factory=dict, init=False)
    _random: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = Random(self.seed)

    def expect(self, request_id: str, num_output_tokens: int) -> None:
        """Tell how many tokens a request will give, END included, before it first runs."""
        self._output_lens[request_id] = num_output_tokens

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        """Run one step and move the clock.

        Raises:
            RunnerError: a request whose length was never told.
        """
        try:
            sampled, batch = self._run(output)
        except KeyError as error:
            raise RunnerError(
                f"step {output.step}: request {error} runs, but its length was never told"
            ) from error
        for request_id in output.finished_req_ids:
            self._output_lens.pop(request_id, None)
            self._last.pop(request_id, None)
            self._partial.pop(request_id, None)
        seconds = self.latency.predict(batch)
        if self.noise:
            seconds *= self._random.lognormvariate(0.0, self.noise)
        result = RunnerOutput(sampled)
        if output.connector_metadata is not None:
            seconds += self._transfer(output, result)
        self.clock.advance(seconds)
        result.duration_s = seconds
        return result

    def close(self) -> None:
        """Forget everything."""
        self._output_lens.clear()
        self._last.clear()
        self._partial.clear()

    def _run(self, output: SchedulerOutput) -> tuple[list[list[int]], Batch]:
        """What is sampled, and the sums that time depends on."""
        cached, counts = output.scheduled_cached_reqs, output.num_scheduled_tokens
        is_plain = not (
            output.scheduled_new_reqs
            or cached.resumed_req_ids
            or self._partial
            or output.total_num_scheduled_tokens != len(counts)
        )
        if not is_plain:
            return self._run_mixed(output)
        size, last, before = len(counts), self._last, cached.num_computed_tokens
        sampled = [
            _FILLED if known + 1 < last[name] else _ENDED
            for name, known in zip(cached.req_ids, before, strict=True)
        ]
        return sampled, Batch(size, 0, 0.0, sum(before) + size, size, size)

    def _run_mixed(self, output: SchedulerOutput) -> tuple[list[list[int]], Batch]:
        cached = output.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for new in output.scheduled_new_reqs:
            name, size = new.request_id, len(new.prompt_token_ids)
            computed[name] = new.num_computed_tokens
            self._partial[name] = size
            self._last[name] = size + self._output_lens[name] - 1
        for name in cached.resumed_req_ids:
            self._partial[name] = len(cached.all_token_ids[name])
        sampled: list[list[int]] = []
        prefill = decodes = context = 0
        pairs = 0.0
        for name, count in output.num_scheduled_tokens.items():
            before, known = computed[name], self._partial.get(name)
            if known is None and count == 1:
                decodes += 1
                context += before + 1
                sampled.append(_FILLED if before + 1 < self._last[name] else _ENDED)
                continue
            if count == 1:
                decodes += 1
                context += before + 1
            else:
                prefill += count
                pairs += count * (before + count / 2)
            drafts = output.scheduled_spec_decode_tokens.get(name, _NOTHING)
            if known is not None and before + count - len(drafts) < known:
                sampled.append(_NOTHING)
                continue
            self._partial.pop(name, None)
            sampled.append(self._verify(name, before + count - len(drafts), len(drafts)))
        size = len(sampled)
        return sampled, Batch(prefill + decodes, prefill, pairs, context, decodes, size)

    def _verify(self, name: str, num_known: int, num_drafts: int) -> list[int]:
        """Accepted drafts and one token more, up to the request's last."""
        count = 1
        while count <= num_drafts and self._random.random() < self.acceptance:
            count += 1
        most = self._last[name] - num_known + 1
        return [FILL] * count if count < most else [FILL] * (most - 1) + [END]

    def _transfer(self, output: SchedulerOutput, result: RunnerOutput) -> float:
        """Seconds that copies over the link take; they are done within the step."""
        metadata = output.connector_metadata
        blocks = len(metadata.stores) + len(metadata.loads)
        result.finished_recving = list(metadata.receiving)
        result.finished_sending = list(metadata.sending)
        size = blocks * self.config.block_size * self.kv_bytes_per_token
        return float(size / self.link_bytes_per_s)
