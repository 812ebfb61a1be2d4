"""Block tables on the device: news alone are sent, and rows are never shared."""

from __future__ import annotations

import random

import pytest
import torch
from planning import newest, plan, state

from framework import RunnerError, SchedulerConfig
from runners.common.state import RequestState
from runners.triton.tables import BlockTables

CPU = torch.device("cpu")


def run(tables: BlockTables, *requests: RequestState) -> tuple[list[int], int]:
    """One step of these requests; their rows, and how many ids were sent."""
    rows = [newest(request) for request in requests]
    places = tables.rows(rows).tolist()
    changes = tables.changes(rows)
    tables.apply(*map(torch.from_numpy, changes))
    return places, len(changes[1])


def assert_there(tables: BlockTables, row: int, request: RequestState) -> None:
    assert tables.ids[row, : len(request.blocks)].tolist() == request.blocks


def test_only_what_is_new_is_sent() -> None:
    tables = BlockTables(3, 8, CPU)
    request = state("a", [1], [5, 3])
    (row,), count = run(tables, request)
    assert count == 2
    assert run(tables, request) == ([row], 0)
    request.blocks += [9]
    assert run(tables, request) == ([row], 1)
    assert_there(tables, row, request)


@pytest.mark.parametrize("how", ["finished_req_ids", "preempted_req_ids"])
def test_a_row_that_was_given_back_is_anothers(how: str) -> None:
    tables = BlockTables(1, 8, CPU)
    run(tables, state("a", [1], [5, 3, 4]))
    tables.forget(plan(**{how: ["a"]}))
    other = state("b", [1], [7])
    assert run(tables, other) == ([0], 1)
    assert_there(tables, 0, other)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_resumed_request_sends_its_whole_table(is_told: bool) -> None:
    """Whether or not an earlier step said that it lost its place."""
    tables = BlockTables(2, 8, CPU)
    request = state("a", [1], [5, 3])
    run(tables, request)
    if is_told:
        tables.forget(plan(preempted_req_ids=["a"]))
        run(tables, state("b", [1], [6]))
    request.blocks = [8, 2]
    tables.forget(plan(resumed=["a"]))
    (row,), count = run(tables, request)
    assert count == 2
    assert_there(tables, row, request)


def test_an_id_that_ends_and_comes_again_in_one_step_starts_anew() -> None:
    tables = BlockTables(1, 8, CPU)
    run(tables, state("a", [1], [5, 3]))
    tables.forget(plan(finished_req_ids=["a"]))
    again = state("a", [2], [4, 6])
    assert run(tables, again) == ([0], 2)
    assert_there(tables, 0, again)


def test_who_never_had_a_row_gives_none_back() -> None:
    tables = BlockTables(1, 8, CPU)
    tables.forget(plan(finished_req_ids=["x"], preempted_req_ids=["y"], resumed=["z"]))
    assert run(tables, state("a", [1]))[0] == [0]
    with pytest.raises(RunnerError, match="'b' finds no row: 1 requests run"):
        run(tables, state("b", [1]))


def test_more_blocks_than_columns_are_refused() -> None:
    with pytest.raises(RunnerError, match="'a' has 9 blocks, the table has room for 8"):
        run(BlockTables(1, 8, CPU), state("a", [1], range(1, 10)))


def test_there_is_room_for_drafts_past_the_longest_request() -> None:
    config = SchedulerConfig(max_model_len=32, block_size=4, num_spec_tokens=3, max_num_seqs=5)
    assert BlockTables.for_config(config, CPU).ids.shape == (5, 10)


@pytest.mark.parametrize("seed", range(5))
def test_after_every_step_each_request_finds_its_blocks(seed: int) -> None:
    """Requests grow, lose their place, come back, end and are followed, at random."""
    draw, tables = random.Random(seed), BlockTables(3, 12, CPU)
    running: dict[str, RequestState] = {}
    away: dict[str, RequestState] = {}
    for step in range(200):
        gone = [name for name in running if draw.random() < 0.15]
        lost = [name for name in running if name not in gone and draw.random() < 0.15]
        for name in gone:
            del running[name]
        back = [name for name in away if len(running) < 3 and draw.random() < 0.5][:1]
        away |= {name: running.pop(name) for name in lost}
        running |= {name: away.pop(name) for name in back}
        for name in back:
            running[name].blocks = draw.sample(range(1, 99), draw.randint(1, 4))
        while len(running) < 3 and draw.random() < 0.5:
            running[f"r{step}.{len(running)}"] = state("", [1], [draw.randrange(1, 99)])
        for name, request in running.items():
            request.request_id = name
            if len(request.blocks) < 12 and draw.random() < 0.5:
                request.blocks += [draw.randrange(1, 99)]
        tables.forget(plan(finished_req_ids=gone, preempted_req_ids=lost, resumed=back))
        chosen = draw.sample(list(running.values()), draw.randint(0, len(running)))
        rows, _ = run(tables, *chosen)
        assert len(set(rows)) == len(rows)
        for row, request in zip(rows, chosen, strict=True):
            assert_there(tables, row, request)
