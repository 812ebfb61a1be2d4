"""Fill whole blocks of the caches of many layers with zeros.

One launch for all tensors whose blocks have the same size and distance: their addresses are read
from a tensor, as in vLLM's `KVBlockZeroer`. Zero bits are zero in every dtype, so blocks are
handled as 4-byte words.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Sequence

TILE = 4096


@triton.jit
def zero_blocks_kernel(addresses, block_ids, stride, size, tile: tl.constexpr):
    block = tl.load(block_ids + tl.program_id(0)).to(tl.int64)
    if block < 0:
        return
    words = tl.load(addresses + tl.program_id(1)).to(tl.pointer_type(tl.int32))
    word = tl.program_id(2) * tile + tl.arange(0, tile)
    tl.store(words + block * stride + word, 0, mask=word < size)


def zero_blocks(tensors: Sequence[torch.Tensor], block_ids: torch.Tensor) -> None:
    """Zero these blocks of every tensor.

    Args:
        tensors: [num_blocks, ...] each, blocks contiguous; shapes and dtypes may differ, the
            device may not. The first call with some set of tensors copies their addresses to the
            device, later ones find them there.
        block_ids: [N], int32 or int64; -1 = leave out.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for tensor in tensors:
        if tensor.numel():
            groups.setdefault(_words(tensor), []).append(tensor.data_ptr())
    if not len(block_ids):
        return
    for (stride, size), addresses in groups.items():
        tile = min(TILE, triton.next_power_of_2(size))
        grid = (len(block_ids), len(addresses), triton.cdiv(size, tile))
        where = _on_device(tuple(addresses), block_ids.device)
        zero_blocks_kernel[grid](where, block_ids, stride, size, tile)


def _words(tensor: torch.Tensor) -> tuple[int, int]:
    """From one block to the next, and in one block."""
    item = tensor.element_size()
    stride, size = tensor.stride(0) * item, tensor[0].numel() * item
    if not tensor[0].is_contiguous() or (stride | size | tensor.data_ptr()) % 4:
        raise ValueError(
            f"tensors holds one of shape {list(tensor.shape)} and strides {list(tensor.stride())}; "
            "blocks must be contiguous and consist of whole, aligned 4-byte words"
        )
    return stride // 4, size // 4


@lru_cache(maxsize=64)
def _on_device(addresses: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(addresses, dtype=torch.int64, device=device)


def zero_blocks_reference(tensors: Sequence[torch.Tensor], block_ids: torch.Tensor) -> None:
    """The same in torch."""
    real = block_ids[block_ids >= 0].long()
    for tensor in tensors:
        tensor[real] = 0
