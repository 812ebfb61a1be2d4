"""Single steps of the Triton runner: who samples, whose cache it is, what comes late, the end."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("transformers")

from planning import GREEDY

from framework import Request, RunnerError, SamplingParams, Scheduler, SchedulerConfig
from framework.engine.core import EngineCore
from framework.output import CachedRequestData, ConnectorMetadata, NewRequestData, SchedulerOutput
from runners.triton import TritonRunner
from runners.triton.late import LateOutput
from runners.triton.loading import accept
from tests.runners import tiny
from tests.runners.driving import PLAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

PROMPT = [11, 5, 60, 2, 33, 8, 71]


@cache
def model(device: str) -> Any:
    """Accepted, with fused modules."""
    return accept(tiny.build("llama").to(device))


def runner_for(device: str, **fields: Any) -> TritonRunner:
    limits = {"max_num_seqs": 3, "max_model_len": 32, "block_size": 4, "num_blocks": 16}
    return TritonRunner(model(device), SchedulerConfig(**{**limits, **fields}))


def begin(
    name: str, prompt: Sequence[int], blocks: Sequence[int], count: int, **fields: Any
) -> SchedulerOutput:
    """A step in which a new request computes so many tokens."""
    new = NewRequestData(name, prompt, GREEDY, list(blocks), 0)
    return SchedulerOutput(0, {name: count}, [new], CachedRequestData(), count, **fields)


def proceed(counts: dict[str, int], computed: dict[str, int], **fields: Any) -> SchedulerOutput:
    """A step of known requests without output so far."""
    names = list(counts)
    cached = CachedRequestData(names, [computed[name] for name in names], [0] * len(names))
    return SchedulerOutput(1, counts, [], cached, sum(counts.values()), **fields)


def test_a_chunk_of_one_token_among_decodes_samples_nothing(device: str) -> None:
    """Such a step is padded and captured like one of decodes, but not all its logits are used."""
    runner = runner_for(device)
    runner.execute(begin("chunk", PROMPT, [1, 2], 3))
    runner.execute(begin("last", PROMPT, [3, 4], 6))
    found = runner.execute(proceed({"chunk": 1, "last": 1}, {"chunk": 3, "last": 6}))
    assert found.sampled_token_ids == [[], tiny.greedy("llama", PROMPT, 1)]
    found = runner.execute(proceed({"chunk": 1}, {"chunk": 4}))
    assert found.sampled_token_ids == [[]]
    found = runner.execute(proceed({"chunk": 2}, {"chunk": 5}))
    assert found.sampled_token_ids == [tiny.greedy("llama", PROMPT, 1)]


def test_an_id_that_ends_and_comes_again_in_one_step_is_another_request(device: str) -> None:
    runner = runner_for(device, max_num_seqs=1)
    runner.execute(begin("r", PROMPT, [1, 2], len(PROMPT)))
    other = PROMPT[::-1][:5]
    found = runner.execute(begin("r", other, [3, 4], 5, finished_req_ids=["r"]))
    assert found.sampled_token_ids == [tiny.greedy("llama", other, 1)]


def test_a_step_without_requests_moves_blocks_all_the_same(device: str) -> None:
    runner = runner_for(device, async_scheduling=True)
    first = runner.execute(begin("r", PROMPT, [1, 2], len(PROMPT)))
    metadata = ConnectorMetadata(
        stores=[(b"x", 1)], loads=[(b"x", 9)], sending=["s"], receiving=["r"]
    )
    found = runner.execute(proceed({}, {}, connector_metadata=metadata))
    assert (found.sampled_token_ids, found.finished_sending, found.finished_recving) == (
        [],
        ["s"],
        ["r"],
    )
    for tensor in runner.cache.tensors():
        assert tensor[1].any()
        assert tensor[9].equal(tensor[1])
    assert first.result().sampled_token_ids == [tiny.greedy("llama", PROMPT, 1)]


def test_runners_of_one_model_do_not_meet(device: str) -> None:
    first = runner_for(device)
    second = first.fresh(first.config)
    other = PROMPT[::-1]
    first.execute(begin("r", PROMPT, [1, 2], 3))
    second.execute(begin("r", other, [1, 2], 3))
    found = [runner.execute(proceed({"r": 4}, {"r": 3})) for runner in (first, second)]
    assert [output.sampled_token_ids[0] for output in found] == [
        tiny.greedy("llama", prompt, 1) for prompt in (PROMPT, other)
    ]
    second.close()
    found = first.execute(begin("s", other, [3, 4], 7))
    assert found.sampled_token_ids == [tiny.greedy("llama", other, 1)]


def test_an_engine_waits_for_late_results_in_another_thread(device: str) -> None:
    runner = runner_for(device, async_scheduling=True)
    scheduler = Scheduler(runner.config, PLAIN)
    params = SamplingParams(max_tokens=4, temperature=0, logprobs=1)
    prompts = [PROMPT, PROMPT[::-1]]
    requests = [Request(f"r{index}", prompt, params) for index, prompt in enumerate(prompts)]
    told: dict[str, list[int]] = {request.request_id: [] for request in requests}
    with EngineCore(scheduler, runner) as engine:
        for request in requests:
            engine.add(request)
        while engine.has_work:
            result = engine.step()
            assert result is not None
            for name, entries in result.logprobs.items():
                told[name] += [next(iter(entry.top)) for entry in entries]
    expected = [tiny.greedy("llama", prompt, 4) for prompt in prompts]
    assert [request.output_token_ids for request in requests] == expected
    assert [told[request.request_id][:4] for request in requests] == expected


def test_after_a_step_that_failed_it_can_be_closed_and_closed_again(device: str) -> None:
    runner = runner_for(device, async_scheduling=True)
    late = runner.execute(begin("r", PROMPT, [1, 2], len(PROMPT)))
    assert isinstance(late, LateOutput)
    with pytest.raises(RunnerError, match="'nobody' is scheduled as known"):
        runner.execute(proceed({"nobody": 1}, {"nobody": 3}))
    for _ in range(2):
        runner.close()
        assert runner.cache.tensors() == []
    assert late.result().sampled_token_ids == [tiny.greedy("llama", PROMPT, 1)]
