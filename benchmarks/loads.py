"""The loads under which the step loop is timed. No model runs; every sampled token is made up.

Nothing is switched off: default plugins, counters, event log and the whole SchedulerOutput.
Prompts, limits and numbers of steps are chosen so that another engine's scheduler can be given
exactly the same work.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter_ns
from typing import Any

from attrs import define, field
from timing import Run, settle, step

from framework import Request, SamplingParams, Scheduler, SchedulerConfig
from plugins.kv_blocks import KvBlocks

BLOCK_SIZE = 16


def prompt_of(index: int, length: int) -> list[int]:
    """Token ids of the prompt number `index`; prompts of two numbers share no block."""
    return [(index * 7919 + position * 13) % 50000 + 3 for position in range(length)]


def request_of(index: int, prompt: list[int], max_tokens: int, *, priority: int = 0) -> Request:
    """A greedy request that ends by length alone."""
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return Request(f"req-{index:06d}", prompt, params, arrival_time=float(index), priority=priority)


def build(*, caching: bool, policy: str = "fcfs", clock: Any = None, **limits: Any) -> Scheduler:
    """A scheduler with the default stack, its prefix cache on or off."""
    config = SchedulerConfig(block_size=BLOCK_SIZE, **limits)
    blocks = KvBlocks(enable_prefix_caching=caching)
    return Scheduler(config, [blocks, "chunked_prefill", policy], clock=clock)


def start_decode(
    num_running: int, caching: bool, *, num_steps: int = 200, clock: Any = None
) -> Scheduler:
    """So many requests of 128 prompt tokens, all in decode."""
    blocks = num_running * ((128 + num_steps + 64) // BLOCK_SIZE + 2) + 16
    whole_request = (128 + 3000) // BLOCK_SIZE + 2  # a pool that could not hold one is refused
    scheduler = build(
        caching=caching,
        clock=clock,
        max_num_seqs=num_running,
        max_num_batched_tokens=max(16384, num_running),
        max_model_len=4096,
        num_blocks=max(blocks, whole_request),
    )
    for index in range(num_running):
        scheduler.add_request(request_of(index, prompt_of(index, 128), 3000))
    while scheduler.waiting or any(one.num_output_tokens < 2 for one in scheduler.running):
        step(scheduler)
    return scheduler


def decode(num_running: int, caching: bool, num_steps: int = 200) -> Run:
    """Everybody gets one token a step."""
    scheduler = start_decode(num_running, caching, num_steps=num_steps)
    settle()
    run = Run()
    for _ in range(num_steps):
        output = step(scheduler, run)
        if len(output.num_scheduled_tokens) != num_running:
            raise RuntimeError(f"{len(output.num_scheduled_tokens)} of {num_running} were planned")
    run.facts = {"steps_per_run": num_steps}
    return run


@define(eq=False)
class Mixed:
    """Up to `num_running` requests under a budget of 16 tokens each, 8 waiting at all times."""

    caching: bool
    num_running: int = 128
    clock: Any = None
    scheduler: Scheduler = field(init=False)
    _num_added: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.scheduler = build(
            caching=self.caching,
            clock=self.clock,
            max_num_seqs=self.num_running,
            max_num_batched_tokens=16 * self.num_running,
            max_model_len=4096,
            num_blocks=20000,
        )

    def feed(self) -> None:
        """Fill the queue up: prompts of 768 tokens, 64 outputs."""
        while len(self.scheduler.waiting) < 8:
            index = self._num_added
            self.scheduler.add_request(request_of(index, prompt_of(index, 768), 64))
            self._num_added += 1


def mixed(caching: bool, num_steps: int = 300, num_warm_up_steps: int = 120) -> Run:
    """Chunks of prompts share every step with decodes, and requests come and go."""
    load = Mixed(caching)
    for _ in range(num_warm_up_steps):
        load.feed()
        step(load.scheduler)
    settle()
    run, tokens, requests = Run(), [], []
    for _ in range(num_steps):
        load.feed()
        output = step(load.scheduler, run)
        tokens.append(output.total_num_scheduled_tokens)
        requests.append(len(output.num_scheduled_tokens))
    run.facts = {
        "steps_per_run": num_steps,
        "tokens_per_step": median(tokens),
        "requests_per_step": median(requests),
    }
    return run


def start_thrash(
    caching: bool, policy: str, pool_share: float, *, num_requests: int = 192, clock: Any = None
) -> Scheduler:
    """Requests of 100 + 300 tokens; the pool holds `pool_share` of what 64 of them need."""
    scheduler = build(
        caching=caching,
        policy=policy,
        clock=clock,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        max_model_len=1024,
        num_blocks=int(64 * (400 // BLOCK_SIZE) * pool_share),
    )
    for index in range(num_requests):
        urgency = index * 5 % 4
        scheduler.add_request(request_of(index, prompt_of(index, 100), 300, priority=urgency))
    return scheduler


def thrash(caching: bool, policy: str, pool_share: float) -> Run:
    """Blocks run out again and again, until everybody is served."""
    scheduler = start_thrash(caching, policy, pool_share)
    settle()
    run = Run()
    while scheduler.has_unfinished_requests():
        step(scheduler, run)
    run.facts = {
        "steps_per_run": len(run.schedule_us),
        "preemptions": scheduler.counters.num_preemptions,
    }
    return run


def start_prefix_heavy(
    *, num_requests: int = 1000, num_shared: int = 1536, length: int = 2048, clock: Any = None
) -> tuple[Scheduler, list[list[int]]]:
    """A scheduler, and prompts that begin alike."""
    scheduler = build(
        caching=True,
        clock=clock,
        max_num_seqs=1024,
        max_num_batched_tokens=8192,
        max_model_len=4096,
        num_blocks=60000,
    )
    prefix = prompt_of(0, num_shared)
    prompts = [prefix + prompt_of(1 + one, length - num_shared) for one in range(num_requests)]
    return scheduler, prompts


def add_prompts(scheduler: Scheduler, prompts: list[list[int]]) -> None:
    """One request of one output token a prompt."""
    requests = [request_of(index, prompt, 1) for index, prompt in enumerate(prompts)]
    for request in requests:
        scheduler.add_request(request)


def prefix_heavy() -> Run:
    """What an admission costs in all: building the request, hashing, adding, both halves."""
    scheduler, prompts = start_prefix_heavy()
    settle()
    begin = perf_counter_ns()
    add_prompts(scheduler, prompts)
    run = Run(before_us=(perf_counter_ns() - begin) / 1e3, num_requests=len(prompts))
    while scheduler.has_unfinished_requests():
        step(scheduler, run)
    hit_tokens = scheduler.counters.num_prefix_hit
    run.facts = {"steps": len(run.schedule_us), "hit_tokens": hit_tokens}
    return run
