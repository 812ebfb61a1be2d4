"""PagedCache: keys and values of all layers in blocks on the device, and attention by our kernels.

A step in which every request has one token takes the split-KV decode kernel; any other mix of
chunks, decodes and draft verification is one launch of the unified kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from attrs import define

from runners.triton.configs import AttentionConfig, current_arch, lookup
from runners.triton.inputs import StepInputs, standalone
from runners.triton.kernels.paged_attention import paged_attention
from runners.triton.kernels.rotary import rotate_and_store
from runners.triton.kernels.split_decode import (
    Workspace,
    choose_num_splits,
    make_workspace,
    split_decode,
)
from runners.triton.kernels.store_kv import store_kv

if TYPE_CHECKING:
    from runners.common.batch import FlatBatch
    from runners.common.routing import Options

FEW_QUERIES = 4
"""Queries a request, on average, up to which the unified kernel takes the decode sizes."""
INTERPRETED_PROCESSORS = 4


@define(eq=False)
class Rotary:
    """What turns the queries and keys of a step: cosines and sines, [T, rotary_dim]."""

    cos: torch.Tensor
    sin: torch.Tensor


class PagedCache:
    """The paged KV of a model.

    Args:
        num_blocks, block_size: of the pool.
        dtype, device: of keys and values.
    """

    def __init__(
        self, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.dtype = dtype
        self.device = device
        self.inputs: StepInputs | None = None
        self.num_calls = 0
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._workspaces: dict[tuple[int, int, int, int], Workspace] = {}
        self._configs: dict[tuple[int, int, str], AttentionConfig] = {}
        self._arch = current_arch(device)
        self._num_processors = INTERPRETED_PROCESSORS
        if device.type == "cuda":
            properties = torch.cuda.get_device_properties(device)
            self._num_processors = properties.multi_processor_count

    def tensors(self) -> list[torch.Tensor]:
        """Keys and values of every layer, each [num_blocks, block_size, kv_heads, head_dim]."""
        return [tensor for layer in sorted(self._layers) for tensor in self._layers[layer]]

    def clear(self) -> None:
        """Give the memory back."""
        self.inputs = None
        self._layers.clear()
        self._workspaces.clear()

    def begin(self, batch: FlatBatch) -> None:
        """What follows is the forward pass of this batch, with tables of its own."""
        self.inputs = standalone(batch, self.device)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: Options,
    ) -> torch.Tensor:
        """Write the step's keys and values, then attend; see `PagedAttention`."""
        keys, values = self._of_layer(layer, key, value)
        store_kv(key, value, keys, values, self._now().slots)
        return self._attention(query, keys, values, options)

    def rotate_and_attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        rotary: Rotary,
        options: Options,
    ) -> torch.Tensor:
        """The same for queries and keys that are not turned yet."""
        keys, values = self._of_layer(layer, key, value)
        turned = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        rotate_and_store(
            query, key, value, rotary.cos, rotary.sin, turned, keys, values, self._now().slots
        )
        return self._attention(turned, keys, values, options)

    def _now(self) -> StepInputs:
        assert self.inputs is not None, "set the inputs before the forward pass"
        return self.inputs

    def _of_layer(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.num_calls += 1
        pair = self._layers.get(layer)
        if pair is None:
            size = (self.num_blocks, self.block_size)
            keys, values = (
                torch.zeros(*size, *tensor.shape[1:], dtype=self.dtype, device=self.device)
                for tensor in (key, value)
            )
            pair = self._layers[layer] = keys, values
        return pair

    def _attention(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, options: Options
    ) -> torch.Tensor:
        inputs = self._now()
        num_tokens, heads, head_dim = query.shape
        num_requests, kv_heads = len(inputs.lengths), keys.shape[2]
        few = num_tokens <= FEW_QUERIES * num_requests
        config = self._config(head_dim, heads // kv_heads, "decode" if few else "prefill")
        out = torch.empty(
            num_tokens, heads, values.shape[3], dtype=query.dtype, device=query.device
        )
        scale = options.scaling if options.scaling is not None else head_dim**-0.5
        if inputs.is_decode:
            num_splits = choose_num_splits(num_requests, kv_heads, self._num_processors)
            split_decode(
                query,
                keys,
                values,
                out,
                lengths=inputs.lengths,
                tables=inputs.tables,
                rows=inputs.table_rows,
                scale=scale,
                window=options.window,
                softcap=options.softcap,
                sinks=options.sinks,
                num_splits=num_splits,
                workspace=self._workspace(num_requests, heads, values.shape[3], num_splits),
                config=config,
            )
            return out
        paged_attention(
            query,
            keys,
            values,
            out,
            starts=inputs.starts,
            lengths=inputs.lengths,
            tables=inputs.tables,
            rows=inputs.table_rows,
            scale=scale,
            window=options.window,
            softcap=options.softcap,
            sinks=options.sinks,
            config=config,
        )
        return out

    def _config(self, head_dim: int, group: int, phase: str) -> AttentionConfig:
        found = self._configs.get((head_dim, group, phase))
        if found is None:
            found = lookup(self._arch, head_dim, group, self.dtype, phase)
            self._configs[head_dim, group, phase] = found
        return found

    def _workspace(
        self, num_requests: int, heads: int, value_dim: int, num_splits: int
    ) -> Workspace:
        """Kept, since a captured graph writes there."""
        sizes = num_requests, heads, value_dim, num_splits
        found = self._workspaces.get(sizes)
        if found is None:
            found = self._workspaces[sizes] = make_workspace(*sizes, self.device)
        return found
