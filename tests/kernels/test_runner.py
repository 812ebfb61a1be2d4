"""The whole Triton runner against the torch runner, on random models, in the interpreter."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
from attrs import define

pytest.importorskip("transformers")

from framework import Request, SamplingParams, SchedulerConfig, hookimpl
from runners.torch_paged import TorchRunner
from runners.triton import TritonRunner
from runners.triton.loading import accept
from tests.runners import tiny
from tests.runners.driving import PLAIN, serve

CHUNKED = ["kv_blocks", "chunked_prefill(cap=7)", "fcfs"]
GREEDY = SamplingParams(max_tokens=6, temperature=0)


@cache
def model(kind: str) -> Any:
    """Accepted, with fused modules."""
    return accept(tiny.build(kind))


def asked() -> list[list[int]]:
    """Four prompts: two that share two blocks, and that repeat themselves."""
    draw = random.Random(5)
    words = [[draw.randrange(tiny.VOCABULARY) for _ in range(size)] for size in (8, 3, 4, 5)]
    return [words[0] + words[1] * 2, words[0] + words[2], words[3] * 3, words[1] * 3]


def tight(**fields: Any) -> SchedulerConfig:
    """So few blocks that a request is preempted."""
    limits = {
        "max_num_batched_tokens": 14,
        "max_num_seqs": 3,
        "max_model_len": 32,
        "block_size": 4,
        "num_blocks": 12,
    }
    return SchedulerConfig(**{**limits, **fields})


@define(eq=False)
class Foresight:
    """Drafts what will be sampled, every other time with a wrong second token."""

    outputs: dict[tuple[int, ...], list[int]]

    @hookimpl
    def propose_drafts(self, request: Request, num_drafts: int) -> list[int]:
        done = len(request.output_token_ids)
        drafts = self.outputs[tuple(request.prompt_token_ids)][done : done + num_drafts]
        if len(drafts) > 1 and done % 2:
            drafts[1] = (drafts[1] + 1) % tiny.VOCABULARY
        return drafts


def by_torch(kind: str, params: SamplingParams) -> list[list[int]]:
    """Outputs of the torch runner, undisturbed."""
    calm = SchedulerConfig(block_size=4, num_blocks=100, max_model_len=32)
    runner = TorchRunner(tiny.model(kind), calm, num_threads=1)
    return serve(runner, PLAIN, params, asked())[0]


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_tokens_are_those_of_the_torch_runner(kind: str) -> None:
    """Over chunks, prefix hits, preemptions with their resumption, and verified drafts."""
    expected = by_torch(kind, GREEDY)
    ahead = Foresight(dict(zip(map(tuple, asked()), expected, strict=False)))
    runner = TritonRunner(model(kind), tight(num_spec_tokens=2))
    outputs, scheduler = serve(runner, [*CHUNKED, ahead], GREEDY, asked())
    assert outputs == expected
    counters = scheduler.counters
    assert counters.num_preemptions > 0
    assert counters.num_prefix_hit > 0
    assert 0 < counters.num_drafts_accepted < counters.num_drafts
    assert len(runner.states) == 0


@pytest.mark.parametrize("stack", [PLAIN, CHUNKED])
def test_async_steps_take_their_tokens_from_the_device(stack: list[str]) -> None:
    runner = TritonRunner(model("llama"), tight(async_scheduling=True))
    outputs, scheduler = serve(runner, stack, GREEDY, asked())
    assert outputs == by_torch("llama", GREEDY)
    assert scheduler.counters.num_preemptions > 0
