"""Take tokens out of rows of logits that must not be drawn yet: one program a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def suppress_stop_tokens_kernel(
    logits, stops, logits_stride, stops_stride, count, padded_count: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, padded_count)
    token = tl.load(stops + row * stops_stride + place, mask=place < count, other=-1)
    tl.store(logits + row * logits_stride + token, float("-inf"), mask=token >= 0)


def suppress_stop_tokens(logits: torch.Tensor, stops: torch.Tensor) -> None:
    """Make logits -inf in place.

    Args:
        logits: [L, V], rows contiguous.
        stops: [L, S], int32, rows contiguous: tokens that the row may not draw; -1 = none.
    """
    num_rows, count = stops.shape
    if not num_rows or not count:
        return
    suppress_stop_tokens_kernel[(num_rows,)](
        logits,
        stops,
        logits.stride(0),
        stops.stride(0),
        count,
        triton.next_power_of_2(count),
        num_warps=1,
    )


def suppress_stop_tokens_reference(logits: torch.Tensor, stops: torch.Tensor) -> None:
    """The same in torch."""
    for row, tokens in zip(logits, stops.tolist(), strict=True):
        row[[token for token in tokens if token >= 0]] = -torch.inf
