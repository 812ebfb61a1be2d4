"""What a runner remembers of requests follows from the plans alone."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from framework import RunnerError, SamplingParams
from framework.output import (
    CachedRequestData,
    NewRequestData,
    SchedulerOutput,
)
from runners.common.batch import flatten
from runners.common.state import RequestStates, ScheduledRow

PROMPT = [10, 11, 12, 13, 14]


def new(states: RequestStates, count: int = 5, *, blocks: tuple[int, ...] = (7, 3)) -> ScheduledRow:
    data = NewRequestData("a", PROMPT, SamplingParams(), list(blocks), 0)
    plan = SchedulerOutput(0, {"a": count}, [data], CachedRequestData(), count)
    return states.apply(plan)[0]


def again(
    states: RequestStates,
    count: int,
    computed: int,
    num_output: int,
    *,
    drafts: tuple[int, ...] = (),
    cached: CachedRequestData | None = None,
) -> ScheduledRow:
    columns = cached or CachedRequestData()
    columns.req_ids = ["a"]
    columns.num_computed_tokens, columns.num_output_tokens = [computed], [num_output]
    plan = SchedulerOutput(1, {"a": count}, [], columns, count)
    if drafts:
        plan.scheduled_spec_decode_tokens = {"a": list(drafts)}
    return states.apply(plan)[0]


def sampled(row: ScheduledRow, *tokens: int) -> None:
    """What a runner notes after a step."""
    row.state.num_computed += len(tokens) - 1
    row.state.token_ids += tokens


def test_a_chunk_samples_only_at_the_end_of_the_prompt() -> None:
    states = RequestStates()
    first = new(states, 3)
    second = again(states, 2, 3, 0)
    assert (first.tokens, first.start, first.samples) == ([10, 11, 12], 0, False)
    assert (second.tokens, second.start, second.samples) == ([13, 14], 3, True)


def test_blocks_are_appended_or_after_a_preemption_replaced() -> None:
    states = RequestStates()
    sampled(new(states), 20)
    grown = CachedRequestData(new_block_ids={"a": [9]})
    row = again(states, 1, 5, 1, cached=grown)
    assert (row.tokens, row.state.blocks) == ([20], [7, 3, 9])
    back = CachedRequestData(
        new_block_ids={"a": [1, 2]}, resumed_req_ids={"a"}, all_token_ids={"a": [*PROMPT, 20]}
    )
    row = again(states, 6, 0, 1, cached=back)
    assert (row.tokens, row.start, row.state.blocks) == ([*PROMPT, 20], 0, [1, 2])


def test_drafts_come_last_and_are_not_counted_as_computed() -> None:
    states = RequestStates()
    sampled(new(states), 20)
    row = again(states, 3, 5, 1, drafts=(30, 31))
    assert (row.tokens, row.num_drafts, row.samples) == ([20, 30, 31], 2, True)
    assert row.state.num_computed == 6


def test_placeholders_are_filled_from_the_runners_own_proposals() -> None:
    states = RequestStates()
    row = new(states)
    sampled(row, 20)
    row.state.proposed = [40]
    row = again(states, 3, 5, 1, drafts=(-1, -1))
    assert (row.tokens, row.num_drafts) == ([20, 40], 1)
    sampled(row, 50)
    row = again(states, 3, 6, 2, drafts=(-1, -1))
    assert (row.tokens, row.num_drafts) == ([50], 0)


def test_a_plan_that_counts_on_rejected_drafts_starts_earlier() -> None:
    """In async mode the next plan is made before the drafts of this one are verified."""
    states = RequestStates()
    sampled(new(states), 20)
    row = again(states, 3, 5, 1, drafts=(30, 31))
    sampled(row, 21)  # both rejected: 6 tokens computed, where the plan counts on 8
    row = again(states, 1, 8, 4)
    assert (row.tokens, row.start, row.samples) == ([21], 6, True)


def test_a_finished_id_may_come_again() -> None:
    states = RequestStates()
    new(states)
    states.apply(SchedulerOutput(1, {}, [], CachedRequestData(), 0, finished_req_ids=["a", "b"]))
    assert len(states) == 0
    assert new(states, blocks=(1, 2)).state.blocks == [1, 2]


def test_a_request_that_was_never_announced_is_an_error() -> None:
    with pytest.raises(RunnerError, match="'a' is scheduled as known, but this runner was never"):
        again(RequestStates(), 1, 5, 1)


def test_more_tokens_than_known_are_an_error() -> None:
    states = RequestStates()
    new(states)
    with pytest.raises(RunnerError, match="is given 2 tokens from position 5, but it has 5"):
        again(states, 2, 5, 1)


def test_seeds_depend_on_the_request_and_the_runner() -> None:
    seeds = {new(RequestStates(seed)).state.seed for seed in (0, 0, 1)}
    assert len(seeds) == 2


def test_slots_follow_the_table() -> None:
    row = new(RequestStates())
    batch = flatten([row], block_size=4)
    assert batch.slots.tolist() == [28, 29, 30, 31, 12]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4]
    assert batch.logits_rows.tolist() == [4]


def test_logits_rows_are_the_last_sure_token_and_the_drafts() -> None:
    states = RequestStates()
    chunk = new(states, 3)
    other = RequestStates()
    sampled(new(other), 20)
    drafting = again(other, 3, 5, 1, drafts=(30, 31))
    batch = flatten([chunk, drafting], block_size=4)
    assert batch.starts.tolist() == [0, 3, 6]
    assert batch.lengths.tolist() == [3, 8]
    assert batch.logits_rows.tolist() == [3, 4, 5]
    assert flatten([], block_size=4).input_ids.tolist() == []
