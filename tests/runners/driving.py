"""Run a stack and a runner to the end of some prompts, and the stacks that tests run."""

from __future__ import annotations

import random
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from framework import Request, SamplingParams, Scheduler, SchedulerConfig
from tests.runners import tiny

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework import RunnerOutput
    from framework.output import SchedulerOutput

BLOCK_SIZE = 4
PLAIN = ["kv_blocks", "chunked_prefill", "fcfs"]
STACKS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "plain": (PLAIN, {}),
    "async": (PLAIN, {"async_scheduling": True}),
    "drafts": (["kv_blocks", "chunked_prefill", "spec_decode", "fcfs"], {"num_spec_tokens": 3}),
    "offload": (["kv_blocks", "chunked_prefill", "kv_offload", "fcfs"], {}),
    "all": (
        [
            "kv_blocks",
            "chunked_prefill(cap=7)",
            "spec_decode(pad=True)",
            "kv_offload(load='async')",
            "priority(displace=True)",
        ],
        {"num_spec_tokens": 3, "async_scheduling": True},
    ),
}


def prompts() -> list[list[int]]:
    """Of 5 to 40 tokens; some share a beginning, some repeat themselves."""
    draw = random.Random(1)
    shared = [draw.randrange(tiny.VOCABULARY) for _ in range(12)]
    found = []
    for index in range(8):
        own = [draw.randrange(tiny.VOCABULARY) for _ in range(draw.randint(5, 20))]
        found.append(shared + own if index % 2 else own * (1 + index % 4))
    return found


def serve(
    runner: Any,
    stack: list[str],
    params: SamplingParams,
    asked: Sequence[list[int]] | None = None,
) -> tuple[list[list[int]], Scheduler]:
    """Every prompt to its end, twice, the second time with what the first left behind."""
    scheduler = Scheduler(runner.config, stack)
    outputs = []
    for turn in range(2):
        requests = [
            Request(f"{turn}.{index}", prompt, params, priority=-index)
            for index, prompt in enumerate(prompts() if asked is None else asked)
        ]
        for request in requests:
            scheduler.add_request(request)
        drive(scheduler, runner)
        outputs += [request.output_token_ids for request in requests]
    return outputs, scheduler


def drive(scheduler: Scheduler, runner: Any) -> None:
    """Up to two steps in flight in async mode."""
    depth = 2 if scheduler.config.async_scheduling else 1
    flights: list[tuple[SchedulerOutput, RunnerOutput | Future[RunnerOutput]]] = []
    while scheduler.has_requests() or flights:
        if scheduler.has_requests() and len(flights) < depth:
            plan = scheduler.schedule()
            flights.append((plan, runner.execute(plan)))
            if len(flights) < depth and scheduler.has_requests():
                continue
        plan, found = flights.pop(0)
        done = found.result() if isinstance(found, Future) else found
        scheduler.update_from_output(plan, done)


def tight(**fields: Any) -> SchedulerConfig:
    """So few blocks that requests are preempted."""
    limits = {
        "max_num_batched_tokens": 24,
        "max_num_seqs": 6,
        "max_model_len": 128,
        "block_size": BLOCK_SIZE,
        "num_blocks": 30,
    }
    return SchedulerConfig(**{**limits, **fields})
