"""Copy whole blocks between two caches of the same block shape.

One launch for all blocks of one pair of tensors, for offloading and loading; as `copy_blocks` and
`swap_blocks` of vLLM (Kwon et al., "PagedAttention", SOSP 2023).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 4096
WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit
def copy_blocks_kernel(
    source, target, source_ids, target_ids, source_stride, target_stride, size, tile: tl.constexpr
):
    pair = tl.program_id(0)
    source_block = tl.load(source_ids + pair).to(tl.int64)
    target_block = tl.load(target_ids + pair).to(tl.int64)
    if (source_block < 0) | (target_block < 0):
        return
    column = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = column < size
    found = tl.load(source + source_block * source_stride + column, mask=inside)
    tl.store(target + target_block * target_stride + column, found, mask=inside)


def copy_blocks(
    source: torch.Tensor,
    target: torch.Tensor,
    source_ids: torch.Tensor,
    target_ids: torch.Tensor,
) -> None:
    """Copy block `source_ids[i]` of the source over block `target_ids[i]` of the target.

    Args:
        source, target: [num_blocks of each, ...], the same block shape and dtype, blocks
            contiguous; may be the same tensor where no block is both read and written.
        source_ids, target_ids: [N], int32 or int64; -1 in either leaves the pair out. No target
            may be named twice.
    """
    if source.shape[1:] != target.shape[1:] or source.dtype != target.dtype:
        raise ValueError(
            f"target has blocks of {list(target.shape[1:])} {target.dtype}; "
            f"those of source are {list(source.shape[1:])} {source.dtype}"
        )
    num_pairs = len(source_ids)
    if not num_pairs or not source.numel() or not target.numel():
        return
    size = source[0].numel()
    if not (source[0].is_contiguous() and target[0].is_contiguous()):
        raise ValueError("source or target has blocks that are not contiguous")
    # as integers: not every GPU knows every 8-bit float
    word = WORDS[source.element_size()]
    tile = min(TILE, triton.next_power_of_2(size))
    copy_blocks_kernel[(num_pairs, triton.cdiv(size, tile))](
        source.view(word),
        target.view(word),
        source_ids,
        target_ids,
        source.stride(0),
        target.stride(0),
        size,
        tile,
    )


def copy_blocks_reference(
    source: torch.Tensor,
    target: torch.Tensor,
    source_ids: torch.Tensor,
    target_ids: torch.Tensor,
) -> None:
    """The same in torch."""
    real = (source_ids >= 0) & (target_ids >= 0)
    target[target_ids[real].long()] = source[source_ids[real].long()]
