"""A real model gives the same tokens, greedy or drawn, whichever stacks follow one another."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from framework import Request, SamplingParams, Scheduler
from framework.engine.core import EngineCore
from runners.torch_paged import TorchRunner
from tests.runners import tiny
from tests.runners.driving import PLAIN, STACKS, prompts, tight

SWAPS = [
    ["kv_blocks", "chunked_prefill(cap=7)", "priority(displace=True)"],
    ["kv_blocks", "chunked_prefill", "kv_offload", "srpt", "history_quantile"],
    PLAIN,
]


def serve(fields: dict[str, Any], params: SamplingParams, *, every: int) -> list[list[int]]:
    """Every prompt to its end, with another stack every so many steps (0 = never)."""
    runner = TorchRunner(tiny.model("llama"), tight(**fields), num_threads=1)
    requests = [Request(f"r{i}", tokens, params) for i, tokens in enumerate(prompts())]
    swaps = num_steps = 0
    with EngineCore(Scheduler(runner.config, PLAIN), runner) as core:
        for request in requests:
            core.add(request)
        while core.has_work:
            core.step()
            num_steps += 1
            if every and num_steps % every == 0 and not core.scheduler.has_transfers:
                drafting = STACKS["drafts"][0] if fields.get("num_spec_tokens") else []
                core.swap(drafting if swaps % 4 == 3 and drafting else SWAPS[swaps % 3])
                swaps += 1
        assert (swaps > 2) == bool(every) and len(runner.states) == 0
    return [request.output_token_ids for request in requests]


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("name", ["plain", "async", "drafts"])
def test_swaps_change_no_token(name: str, temperature: float) -> None:
    params = SamplingParams(max_tokens=10, temperature=temperature, seed=11)
    _, fields = STACKS[name]
    expected = serve({}, params, every=0)
    assert serve(fields, params, every=4) == expected
