"""A step's way to the device: padding, fixed addresses, tokens that the host does not know yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest
import torch
from planning import chunk, newest, plan, state

from framework import SchedulerConfig
from runners.common.batch import flatten
from runners.triton.feed import Feed, Step
from runners.triton.inputs import StepInputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runners.common.state import ScheduledRow

CPU = torch.device("cpu")
CONFIG = SchedulerConfig(
    max_num_batched_tokens=16, max_num_seqs=7, max_model_len=64, block_size=4, num_blocks=99
)
NAMES = [name.name for name in attrs.fields(StepInputs) if name.name != "is_decode"]


def send(
    feed: Feed, rows: list[ScheduledRow], more: Mapping[str, np.ndarray] | None = None
) -> Step:
    return feed.send(flatten(rows, CONFIG.block_size), feed.rows_of(rows), more or {})


def decodes(count: int) -> list[ScheduledRow]:
    """Requests of 2, 3, ... tokens, each with blocks of its own."""
    return [
        newest(state(f"r{index}", range(10, 12 + index), [3 * index + 1, 3 * index + 2]))
        for index in range(count)
    ]


@pytest.mark.parametrize(("count", "size"), [(1, 1), (3, 4), (5, 7), (7, 7)])
def test_a_step_of_one_token_each_is_padded_with_what_does_nothing(count: int, size: int) -> None:
    step = send(Feed(CONFIG, CPU), decodes(count))
    inputs, padding = step.inputs, size - count
    assert (step.size, inputs.is_decode) == (size, True)
    assert inputs.lengths.tolist() == [*range(2, 2 + count), *[0] * padding]
    assert inputs.positions.tolist() == [*range(1, 1 + count), *[0] * padding]
    assert inputs.input_ids.tolist() == [*range(11, 11 + count), *[0] * padding]
    assert inputs.slots[count:].tolist() == [-1] * padding
    assert inputs.starts.tolist() == list(range(size + 1))
    assert len(inputs.table_rows) == size
    assert step.logits_rows.tolist() == list(range(count))


def test_tables_and_slots_name_the_same_blocks() -> None:
    inputs = send(Feed(CONFIG, CPU), decodes(5)).inputs
    for index in range(5):
        position = int(inputs.positions[index])
        block = inputs.tables[inputs.table_rows[index], position // 4]
        assert inputs.slots[index] == block * 4 + position % 4


def test_inputs_lie_at_the_same_addresses_in_every_step_of_one_token_each() -> None:
    feed, places = Feed(CONFIG, CPU), set()
    for count in (1, 7, 2, 5):
        more = {"more": np.arange(count * 3, dtype=np.float32)}
        inputs = send(feed, decodes(count), more).inputs
        places.add(tuple(getattr(inputs, name).data_ptr() for name in NAMES))
        feed.forget(plan(finished_req_ids=[f"r{index}" for index in range(7)]))
        send(feed, [chunk(state("c", range(9), [40, 41, 42]), 0, 9)])
        feed.forget(plan(finished_req_ids=["c"]))
    assert len(places) == 1


def test_a_mixed_step_is_not_padded() -> None:
    request = state("c", range(9), [20, 21, 22])
    step = send(Feed(CONFIG, CPU), [*decodes(2), chunk(request, 2, 7)])
    assert (step.size, step.inputs.is_decode) == (None, False)
    assert step.inputs.starts.tolist() == [0, 1, 2, 7]
    assert step.inputs.lengths.tolist() == [2, 3, 7]
    assert step.inputs.input_ids.tolist()[2:] == [2, 3, 4, 5, 6]
    assert step.logits_rows.tolist() == [0, 1]


def test_what_the_fixed_place_does_not_hold_goes_another_way_unpadded() -> None:
    feed, rows = Feed(CONFIG, CPU), decodes(3)
    large = np.arange(5000, dtype=np.float32)
    usual, step = send(feed, rows), send(feed, rows, {"large": large})
    assert (step.size, step.inputs.is_decode) == (None, False)
    assert np.array_equal(step.fields["large"].numpy(), large)
    for name in ("input_ids", "positions", "slots", "lengths", "table_rows"):
        assert torch.equal(getattr(step.inputs, name), getattr(usual.inputs, name)[:3]), name
    assert send(feed, rows).size == usual.size


def test_tables_larger_than_one_upload_arrive_whole() -> None:
    config = attrs.evolve(CONFIG, max_model_len=16_000, num_blocks=30_000)
    feed = Feed(config, CPU)
    request = state("a", range(9_000), range(1, 2251))
    step = send(feed, [newest(request)])
    assert step.size is None
    row = int(step.inputs.table_rows[0])
    assert step.inputs.tables[row, :2250].tolist() == request.blocks


def test_a_token_still_unknown_is_taken_from_the_device() -> None:
    """Of the request's own row, whatever order the step has."""
    feed, rows = Feed(CONFIG, CPU), decodes(3)
    feed.keep_last(send(feed, rows), torch.tensor([70, 71, 72], dtype=torch.int32))
    for row in rows:
        row.state.token_ids.append(-1)
    again = [newest(row.state) for row in rows]
    known = newest(state("new", [5, 6], [50]))
    step = send(feed, [again[2], known, again[0]])
    assert step.inputs.input_ids.tolist()[:3] == [72, 6, 70]
    request = state("c", range(9), [20, 21, 22])
    step = send(feed, [chunk(request, 0, 5), again[1]])
    assert step.inputs.input_ids.tolist() == [0, 1, 2, 3, 4, 71]


def test_a_row_is_named_where_nobody_samples() -> None:
    request = state("c", range(9), [20, 21, 22])
    for row in (chunk(request, 0, 4), chunk(request, 4, 5)):
        assert send(Feed(CONFIG, CPU), [row]).logits_rows.tolist() == [0]
