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
        self._kept: dict[bytes, list[torch.Tensor]] = {}

    def run(self, output: SchedulerOutput) -> tuple[list[str], list[str]]:
        """Do what a step asks for; returns the ids to report as received and as sent.

        Raises:
            RunnerError: a load of a name that was never stored.
        """
        metadata: ConnectorMetadata | None = output.connector_metadata
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
        places = self._ids(range(len(stores)))
        source = self._ids([block for _, block in stores])
        for name, _ in stores:
            self._kept[name] = []
        for tensor in self.cache.tensors():
            shape = (len(stores), *tensor.shape[1:])
            gathered = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
            copy_blocks(tensor, gathered, source, places)
            is_pinned = self.cache.device.type == "cuda"
            host = torch.empty(shape, dtype=tensor.dtype, pin_memory=is_pinned)
            host.copy_(gathered, non_blocking=True)
            for index, (name, _) in enumerate(stores):
                self._kept[name].append(host[index])

    def _load(self, step: int, loads: Sequence[tuple[bytes, int]]) -> None:
        for name, _ in loads:
            if name not in self._kept:
                raise RunnerError(f"step {step}: external block {name!r} was never stored")
        places = self._ids(range(len(loads)))
        target = self._ids([block for _, block in loads])
        for index, tensor in enumerate(self.cache.tensors()):
            shape = (len(loads), *tensor.shape[1:])
            arrived = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
            for place, (name, _) in enumerate(loads):
                arrived[place].copy_(self._kept[name][index], non_blocking=True)
            copy_blocks(arrived, tensor, places, target)

    def _ids(self, ids: Sequence[int]) -> torch.Tensor:
        return torch.tensor(ids, dtype=torch.int32, device=self.cache.device)
