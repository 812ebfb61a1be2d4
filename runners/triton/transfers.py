"""Transfers: blocks that go to external memory and come back, and blocks that must be zero.

External memory is pinned host memory. Everything is queued on the runner's stream, in the order
stores, zeroing, loads, so nothing is waited for: what follows in the stream finds it done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from framework import RunnerError
from runners.triton.kernels.copy_blocks import copy_blocks
from runners.triton.kernels.zero_blocks import zero_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework import ConnectorMetadata, SchedulerOutput
    from runners.triton.cache import PagedCache


class Transfers:
    """External KV of one cache, by name.

    Args:
        cache: whose blocks these are.
    """

    def __init__(self, cache: PagedCache) -> None:
        self.cache = cache
        self._is_cuda = cache.device.type == "cuda"
        self._kept: dict[bytes, torch.Tensor] = {}
        """One block of all tensors of the cache, flat, by name."""

    def run(self, output: SchedulerOutput) -> tuple[list[str], list[str]]:
        """Do what a step asks for; returns the ids to report as received and as sent.

        Raises:
            RunnerError: a load of a name that was never stored.
        """
        metadata: ConnectorMetadata | None = output.connector_metadata
        if output.drop_kept:
            self.clear()
        if metadata is not None and metadata.stores:
            self._store(metadata.stores)
        if output.new_block_ids_to_zero and self.cache.tensors():
            zero_blocks(self.cache.tensors(), self._ids(output.new_block_ids_to_zero))
        if metadata is None:
            return [], []
        if metadata.loads:
            self._load(output.step, metadata.loads)
        for name in metadata.drop:
            self._kept.pop(name, None)
        return list(metadata.receiving), list(metadata.sending)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def _store(self, stores: Sequence[tuple[bytes, int]]) -> None:
        whole, parts = self._pack(len(stores))
        source, places = self._ids([block for _, block in stores]), self._ids(range(len(stores)))
        for tensor, part in zip(self.cache.tensors(), parts, strict=True):
            copy_blocks(tensor, part, source, places)
        for (name, _), block in zip(stores, whole, strict=True):
            host = torch.empty(block.shape, dtype=block.dtype, pin_memory=self._is_cuda)
            self._kept[name] = host.copy_(block, non_blocking=True)

    def _load(self, step: int, loads: Sequence[tuple[bytes, int]]) -> None:
        for name, _ in loads:
            if name not in self._kept:
                raise RunnerError(f"step {step}: external block {name!r} was never stored")
        whole, parts = self._pack(len(loads))
        for (name, _), block in zip(loads, whole, strict=True):
            block.copy_(self._kept[name], non_blocking=True)
        places, target = self._ids(range(len(loads))), self._ids([block for _, block in loads])
        for tensor, part in zip(self.cache.tensors(), parts, strict=True):
            copy_blocks(part, tensor, places, target)

    def _pack(self, count: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Room for so many blocks of all tensors, a row each, and every tensor's part of it."""
        shapes = [tensor.shape[1:] for tensor in self.cache.tensors()]
        sizes = [shape.numel() for shape in shapes]
        whole = torch.empty(count, sum(sizes), dtype=self.cache.dtype, device=self.cache.device)
        parts = whole.split(sizes, dim=1)
        return whole, [part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)]

    def _ids(self, ids: Sequence[int]) -> torch.Tensor:
        host = torch.tensor(ids, dtype=torch.int32, pin_memory=self._is_cuda)
        return host.to(self.cache.device, non_blocking=True)
