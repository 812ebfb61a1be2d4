"""How many KV blocks fit beside the weights and the largest step, found by running that step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from framework import ModelError, SamplingParams
from runners.common.batch import FlatBatch, flatten
from runners.common.routing import attach
from runners.common.state import RequestState, ScheduledRow
from runners.triton.cache import PagedCache
from runners.triton.devices import current

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from framework import SchedulerConfig

SHARE = 0.9
"""Of the device's memory; the rest is for captured graphs and for others."""


def num_blocks_that_fit(model: PreTrainedModel, config: SchedulerConfig) -> int | None:
    """Blocks for the free memory of the model's GPU; None on the CPU, which has no end that counts.

    Raises:
        ModelError: not even two blocks are left.
    """
    device = torch.device(model.device)
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    size = bytes_per_block(model, config)
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    others = total - free - torch.cuda.memory_reserved(device)
    left = total * SHARE - others - torch.cuda.max_memory_allocated(device)
    torch.cuda.empty_cache()
    return blocks_in(left, size)


def blocks_in(left: float, size: int) -> int:
    """Whole blocks of `size` bytes in what is left.

    Raises:
        ModelError: less than two, the fewest a pool can have.
    """
    blocks = int(left // size)
    if blocks < 2:
        raise ModelError(
            f"num_blocks: beside the weights and the largest step {left / 2**20:.0f} MiB are left "
            f"for KV blocks of {size / 2**20:.2f} MiB each; two are the least"
        )
    return blocks


@torch.inference_mode()
def bytes_per_block(model: PreTrainedModel, config: SchedulerConfig) -> int:
    """Over all layers; runs the largest step that the limits allow, with a cache of two blocks."""
    device = torch.device(model.device)
    cache = PagedCache(2, config.block_size, model.dtype, device)
    batch = largest_step(config)
    attach(model, cache)
    cache.begin(batch)
    ids, positions, needed = (
        torch.from_numpy(array).to(device)
        for array in (batch.input_ids, batch.positions, batch.logits_rows)
    )
    with current(device):
        model(
            input_ids=ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=needed,
        )
    return sum(tensor[0].nbytes for tensor in cache.tensors())


def largest_step(config: SchedulerConfig) -> FlatBatch:
    """As many tokens as the budget allows, of requests that all write into the same block."""
    left = config.max_num_batched_tokens
    rows: list[ScheduledRow] = []
    while left:
        count = min(left, config.max_model_len)
        blocks = [1] * -(-count // config.block_size)
        state = RequestState(str(len(rows)), [0] * count, count, blocks, SamplingParams(), 0, 0)
        rows.append(ScheduledRow(state, state.token_ids, 0, 0, True))
        left -= count
    batch = flatten(rows, config.block_size)
    sampled = min(config.max_num_seqs, len(batch.input_ids))
    batch.logits_rows = np.arange(sampled, dtype=np.int64)
    return batch
