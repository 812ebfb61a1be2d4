"""A request that is alone goes without drafts where only they do not fit."""

from __future__ import annotations

from framework import Request, RunnerOutput, SamplingParams, Scheduler, SchedulerConfig


def test_drafts_that_do_not_fit_cost_no_preemption() -> None:
    config = SchedulerConfig(
        block_size=4, num_blocks=5, max_model_len=64, num_spec_tokens=4, max_num_batched_tokens=64
    )
    scheduler = Scheduler(config, ["kv_blocks", "chunked_prefill", "fcfs"])
    request = Request("r", list(range(10)), SamplingParams(max_tokens=7))
    scheduler.add_request(request)
    num_drafts, steps = 0, 0
    while scheduler.has_unfinished_requests():
        plan = scheduler.schedule()
        num_drafts += len(plan.scheduled_spec_decode_tokens.get("r", ()))
        sampled = [[7]] if plan.num_scheduled_tokens else []
        drafts = {"r": [8, 8, 8, 8]}
        scheduler.update_from_output(plan, RunnerOutput(sampled, draft_token_ids=drafts))
        steps += 1
    assert request.output_token_ids == [7] * 7
    assert request.num_preemptions == 0
    assert num_drafts > 0
    assert steps <= 2 * 7
