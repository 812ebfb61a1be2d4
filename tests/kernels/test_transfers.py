"""Blocks to external memory and back, and zeroed ones."""

from __future__ import annotations

import pytest
import torch
from planning import chunk, plan, state

from framework import RunnerError
from framework.output import ConnectorMetadata
from runners.common.batch import flatten
from runners.common.routing import Options
from runners.triton.cache import PagedCache
from runners.triton.transfers import Transfers

BLOCK_SIZE = 4
NUM_BLOCKS = 9
OPTIONS = Options(None, None, None, None)


@pytest.fixture
def transfers(device: str) -> Transfers:
    """Of a cache of two layers, values narrower than keys, noise in its first four blocks."""
    cache = PagedCache(NUM_BLOCKS, BLOCK_SIZE, torch.float32, torch.device(device))
    noise = torch.Generator().manual_seed(0)
    count = 4 * BLOCK_SIZE
    cache.begin(flatten([chunk(state("a", range(count), range(4)), 0, count)], BLOCK_SIZE))
    for layer in range(2):
        query, key, value = (
            torch.randn(count, *shape, generator=noise).to(device)
            for shape in ((4, 8), (2, 8), (2, 6))
        )
        cache.attend(layer, query, key, value, OPTIONS)
    return Transfers(cache)


def blocks(transfers: Transfers, *ids: int) -> list[torch.Tensor]:
    """Copies of these blocks of every tensor."""
    return [tensor[list(ids)].clone() for tensor in transfers.cache.tensors()]


def equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def move(transfers: Transfers, zeroed: tuple[int, ...] = (), **moves: list) -> None:
    metadata = ConnectorMetadata(**moves)
    transfers.run(plan(connector_metadata=metadata, new_block_ids_to_zero=zeroed))


def test_blocks_are_stored_then_zeroed_then_loaded(transfers: Transfers) -> None:
    before, others = blocks(transfers, 1, 2), blocks(transfers, 0, 3)
    moves = {"stores": [(b"x", 1), (b"y", 2)], "loads": [(b"x", 6), (b"y", 5)]}
    move(transfers, (1, 2, 5, 6), **moves)
    assert not any(block.any() for block in blocks(transfers, 1, 2))
    assert equal(blocks(transfers, 6, 5), before)
    assert equal(blocks(transfers, 0, 3), others)


def test_what_is_stored_outlives_its_block(transfers: Transfers) -> None:
    before = blocks(transfers, 3)
    move(transfers, stores=[(b"x", 3)])
    move(transfers, (3,))
    move(transfers, loads=[(b"x", 3), (b"x", 7)])
    assert equal(blocks(transfers, 3), before)
    assert equal(blocks(transfers, 7), before)


def test_a_name_stored_again_is_replaced(transfers: Transfers) -> None:
    expected = blocks(transfers, 2)
    move(transfers, stores=[(b"x", 1)])
    move(transfers, stores=[(b"x", 2)])
    move(transfers, loads=[(b"x", 8)])
    assert equal(blocks(transfers, 8), expected)


def test_dropped_names_are_forgotten(transfers: Transfers) -> None:
    move(transfers, stores=[(b"x", 1), (b"y", 2)])
    move(transfers, drop=[b"x", b"never stored"])
    move(transfers, loads=[(b"y", 3)])
    with pytest.raises(RunnerError, match="step 0: external block b'x' was never stored"):
        move(transfers, loads=[(b"x", 3)])


def test_after_a_swap_of_the_stack_no_name_is_known(transfers: Transfers) -> None:
    move(transfers, stores=[(b"x", 1)])
    transfers.run(plan(drop_kept=True))
    with pytest.raises(RunnerError, match="external block b'x' was never stored"):
        move(transfers, loads=[(b"x", 3)])


def test_a_name_may_be_loaded_in_the_step_that_drops_it(transfers: Transfers) -> None:
    expected = blocks(transfers, 1)
    move(transfers, stores=[(b"x", 1)])
    move(transfers, loads=[(b"x", 8)], drop=[b"x"])
    assert equal(blocks(transfers, 8), expected)


def test_who_sends_and_receives_is_told(transfers: Transfers) -> None:
    metadata = ConnectorMetadata(sending=["gone"], receiving=["here"])
    told = transfers.run(plan(connector_metadata=metadata))
    assert told == (["here"], ["gone"])


def test_before_the_first_forward_pass_there_is_nothing_to_zero(device: str) -> None:
    cache = PagedCache(NUM_BLOCKS, BLOCK_SIZE, torch.float32, torch.device(device))
    assert Transfers(cache).run(plan(new_block_ids_to_zero=[1])) == ([], [])
