"""How many KV blocks fit."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from framework import ModelError, SchedulerConfig
from runners.triton.memory import blocks_in, bytes_per_block, largest_step, num_blocks_that_fit
from tests.runners import tiny

CONFIG = SchedulerConfig(
    max_num_batched_tokens=20, max_num_seqs=3, max_model_len=8, block_size=4, num_blocks=50
)


def test_whole_blocks_are_counted() -> None:
    assert [blocks_in(left, 10) for left in (20, 29.9, 1e3)] == [2, 2, 100]


@pytest.mark.parametrize("left", [19.9, 0, -5.0])
def test_fewer_than_two_blocks_are_refused(left: float) -> None:
    with pytest.raises(ModelError, match=r"num_blocks: .* two are the least"):
        blocks_in(left, 10)


def test_the_largest_step_has_all_tokens_and_as_many_logits_as_requests() -> None:
    batch = largest_step(CONFIG)
    assert len(batch.input_ids) == 20
    assert batch.lengths.tolist() == [8, 8, 4]
    assert len(batch.logits_rows) == 3
    assert set(batch.slots // 4) == {1}


@pytest.mark.parametrize(("budget", "logits"), [(2, 2), (100, 3)])
def test_no_request_has_more_logits_than_the_step_has_tokens(budget: int, logits: int) -> None:
    config = SchedulerConfig(max_num_batched_tokens=budget, max_num_seqs=3, max_model_len=8)
    assert len(largest_step(config).logits_rows) == logits


def test_a_block_is_counted_in_all_layers(device: str) -> None:
    heads, head_dim = tiny.SIZES["num_key_value_heads"], tiny.SIZES["head_dim"]
    expected = 2 * tiny.SIZES["num_hidden_layers"] * CONFIG.block_size * heads * head_dim * 4
    assert bytes_per_block(tiny.build("llama").to(device), CONFIG) == expected


def test_on_the_cpu_nothing_limits_them() -> None:
    assert num_blocks_that_fit(tiny.build("llama"), CONFIG) is None
