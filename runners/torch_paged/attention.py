"""Paged attention in plain torch: KV in blocks, addressed by block tables, for one flat batch.

Cache of one layer: keys and values [num_blocks, block_size, kv_heads, head_dim]. What the layers
share (which blocks to gather, which keys each query sees) is worked out once a step.

    first chunks   a whole prompt or its beginning: keys and values come from the batch itself
    others         gathered from the cache, grouped by length so that little is padded
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from attrs import define, field
from torch.nn import functional

from runners.common.routing import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.common.batch import FlatBatch

LONGEST_SHORT_ROW = 8
PADDING = 1.3


@define(eq=False)
class Chunk:
    """One request with many queries: tokens `first` to `last` of the batch, after `before`."""

    first: int
    last: int
    before: int
    blocks: torch.Tensor


@define(eq=False)
class Group:
    """R requests with few queries each, padded to Q queries and L keys.

    Attributes:
        queries: [R, Q] index of each query in the batch (padding repeats the last one).
        positions: [R, Q] position of each query.
        blocks: [R * L / block_size] block ids, 0 where padded.
        lengths: [R] keys of each request.
        used: [N] index of the real queries in the flattened [R * Q].
        tokens: [N] their index in the batch.
    """

    queries: torch.Tensor
    positions: torch.Tensor
    blocks: torch.Tensor
    lengths: torch.Tensor
    used: torch.Tensor
    tokens: torch.Tensor
    masks: dict[int | None, torch.Tensor] = field(factory=dict)

    def mask(self, window: int | None, dtype: torch.dtype, num_keys: int) -> torch.Tensor:
        """[R, 1, Q, L]: 0 where a query sees a key, -inf elsewhere."""
        mask = self.masks.get(window)
        if mask is None:
            keys = torch.arange(num_keys)
            seen = keys <= self.positions[..., None]
            if window is not None:
                seen &= keys > self.positions[..., None] - window
            mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)
            mask = self.masks[window] = mask.unsqueeze(1)
        return mask


@define(eq=False)
class Layout:
    """What all layers of one step share."""

    slots: torch.Tensor
    chunks: list[Chunk]
    groups: list[Group]


def lay_out(batch: FlatBatch, block_size: int) -> Layout:
    """Sort the rows of a step into chunks and groups."""
    chunks, short = [], []
    starts = batch.starts.tolist()
    for index, row in enumerate(batch.rows):
        first, last = starts[index], starts[index + 1]
        num_blocks = -(-(row.start + last - first) // block_size)
        blocks = torch.tensor(row.state.blocks[:num_blocks])
        chunk = Chunk(first, last, row.start, blocks)
        if last - first > LONGEST_SHORT_ROW or row.start == 0:
            chunks.append(chunk)
        else:
            short.append(chunk)
    short.sort(key=lambda chunk: len(chunk.blocks))
    groups: list[Group] = []
    while short:
        longest = max(1, int(len(short[0].blocks) * PADDING), len(short[0].blocks) + 2)
        members = [chunk for chunk in short if len(chunk.blocks) <= longest]
        short = short[len(members) :]
        groups.append(_group(members))
    return Layout(torch.from_numpy(batch.slots), chunks, groups)


def _group(members: Sequence[Chunk]) -> Group:
    most = max(chunk.last - chunk.first for chunk in members)
    firsts = torch.tensor([chunk.first for chunk in members])
    counts = torch.tensor([chunk.last - chunk.first for chunk in members])
    befores = torch.tensor([chunk.before for chunk in members])
    offsets = torch.arange(most)
    clamped = torch.minimum(offsets, counts[:, None] - 1)
    real = (offsets < counts[:, None]).flatten().nonzero().squeeze(1)
    queries = firsts[:, None] + clamped
    width = max(len(chunk.blocks) for chunk in members)
    blocks = torch.zeros(len(members), width, dtype=torch.int64)
    for row, chunk in enumerate(members):
        blocks[row, : len(chunk.blocks)] = chunk.blocks
    return Group(
        queries,
        befores[:, None] + clamped,
        blocks.flatten(),
        befores + counts,
        real,
        queries.flatten()[real],
    )


@define(eq=False)
class Call:
    """One layer's tensors in one step.

    Attributes:
        query: [T, heads, head_dim].
        key, value: [T, kv_heads, head_dim], the step's own.
        keys, values: [num_blocks, block_size, kv_heads, head_dim], the layer's cache.
        out: [T, heads, head_dim], filled in.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    options: Options
    out: torch.Tensor


class PagedCache:
    """The paged KV of all layers, and attention over it.

    Args:
        num_blocks, block_size: of the pool; block 0 is never written.
        dtype: of keys and values.
    """

    def __init__(self, num_blocks: int, block_size: int, dtype: torch.dtype) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.dtype = dtype
        self.layout: Layout | None = None
        self.num_calls = 0
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._buffers: dict[str, torch.Tensor] = {}

    def tensors(self) -> list[torch.Tensor]:
        """Keys and values of every layer, each [num_blocks, block_size, kv_heads, head_dim]."""
        return [tensor for layer in sorted(self._layers) for tensor in self._layers[layer]]

    def clear(self) -> None:
        """Give the memory back."""
        self.layout = None
        self._layers.clear()
        self._buffers.clear()

    def begin(self, batch: FlatBatch) -> None:
        """Work out what the layers of this step share."""
        self.layout = lay_out(batch, self.block_size)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: Options,
    ) -> torch.Tensor:
        """Write the step's keys and values, then attend; see `PagedAttention`."""
        layout = self.layout
        assert layout is not None, "set a layout before the forward pass"
        self.num_calls += 1
        keys, values = self._of_layer(layer, key, value)
        keys.view(-1, *key.shape[1:]).index_copy_(0, layout.slots, key)
        values.view(-1, *value.shape[1:]).index_copy_(0, layout.slots, value)
        out = query.new_empty(query.shape[0], query.shape[1], value.shape[2])
        call = Call(query, key, value, keys, values, options, out)
        for chunk in layout.chunks:
            self._chunk(chunk, call)
        for group in layout.groups:
            self._grouped(group, call)
        return out

    def _of_layer(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        pair = self._layers.get(layer)
        if pair is None:
            size = (self.num_blocks, self.block_size)
            pair = (
                torch.zeros(*size, *key.shape[1:], dtype=self.dtype),
                torch.zeros(*size, *value.shape[1:], dtype=self.dtype),
            )
            self._layers[layer] = pair
        return pair

    def _gather(self, name: str, cache: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
        """[len(blocks) * block_size, kv_heads, head_dim], in a buffer that layers share."""
        shape = (len(blocks), *cache.shape[1:])
        size = len(blocks) * cache[0].numel()
        if name not in self._buffers or self._buffers[name].numel() < size:
            self._buffers[name] = torch.empty(size, dtype=self.dtype)
        buffer = self._buffers[name][:size].view(shape)
        torch.index_select(cache, 0, blocks, out=buffer)
        return buffer.view(-1, *cache.shape[2:])

    def _chunk(self, chunk: Chunk, call: Call) -> None:
        span = slice(chunk.first, chunk.last)
        total = chunk.before + chunk.last - chunk.first
        if chunk.before == 0:
            seen_keys, seen_values = call.key[span], call.value[span]
        else:
            seen_keys = self._gather("key", call.keys, chunk.blocks)[:total]
            seen_values = self._gather("value", call.values, chunk.blocks)[:total]
        q = call.query[span].transpose(0, 1).unsqueeze(0)
        k = seen_keys.transpose(0, 1).unsqueeze(0)
        v = seen_values.transpose(0, 1).unsqueeze(0)
        window, mask = call.options.window, None
        if chunk.before or (window is not None and total > window):
            mask = _causal(chunk.before, total, window, q.dtype)
        call.out[span] = _attention(q, k, v, mask, call.options)[0].transpose(0, 1)

    def _grouped(self, group: Group, call: Call) -> None:
        keys, values, options = call.keys, call.values, call.options
        num_requests, most = group.queries.shape
        heads, kv_heads = call.query.shape[1], keys.shape[2]
        per_kv = heads // kv_heads
        k = self._gather("key", keys, group.blocks).view(num_requests, -1, *keys.shape[2:])
        v = self._gather("value", values, group.blocks).view(num_requests, -1, *values.shape[2:])
        mask = group.mask(options.window, call.query.dtype, k.shape[1])
        q = call.query[group.queries.flatten()].view(num_requests, most, kv_heads, per_kv, -1)
        if options.is_plain:
            # the query heads of one kv head are rows of one product: keys are read once
            q = q.permute(0, 2, 3, 1, 4).reshape(num_requests, kv_heads, per_kv * most, -1)
            rows = mask.repeat(1, 1, per_kv, 1) if most > 1 else mask
            result = functional.scaled_dot_product_attention(
                q, k.transpose(1, 2), v.transpose(1, 2), attn_mask=rows, scale=options.scaling
            )
            result = result.view(num_requests, kv_heads, per_kv, most, -1).permute(0, 3, 1, 2, 4)
        else:
            q = q.reshape(num_requests, most, heads, -1).transpose(1, 2)
            result = _attention(q, k.transpose(1, 2), v.transpose(1, 2), mask, options)
            result = result.transpose(1, 2)
        flat = result.reshape(num_requests * most, heads, -1)
        call.out[group.tokens] = flat[group.used] if most > 1 else flat


def _causal(before: int, total: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """[total - before, total]: 0 where a query sees a key, -inf elsewhere."""
    positions, keys = torch.arange(before, total)[:, None], torch.arange(total)
    seen = keys <= positions
    if window is not None:
        seen &= keys > positions - window
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    options: Options,
) -> torch.Tensor:
    """[B, heads, Q, D] over [B, kv_heads, L, D]; without a mask causal from the first key on."""
    if options.is_plain:
        return functional.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            is_causal=mask is None,
            scale=options.scaling,
            enable_gqa=q.shape[1] != k.shape[1],
        )
    per_kv = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(per_kv, dim=1), v.repeat_interleave(per_kv, dim=1)
    scale = options.scaling if options.scaling is not None else q.shape[-1] ** -0.5
    scores = (q @ k.transpose(-1, -2)).float() * scale
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    if mask is None:
        mask = _causal(0, k.shape[-2], None, scores.dtype)
    scores = scores + mask
    if options.sinks is not None:
        sinks = options.sinks.float().reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]
    else:
        scores = scores.softmax(dim=-1)
    return scores.to(v.dtype) @ v
