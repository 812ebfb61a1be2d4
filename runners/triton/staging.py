"""Staging: everything a step needs from the host, in one copy to the device.

The fields lie behind one another in one pinned buffer. A field may be given more room than it
fills, so that it lies at the same address in every step: a captured graph reads it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIGNMENT = 16
NUM_HOST_BUFFERS = 3  # two steps in flight, and the one that is written
DTYPES = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.float32): torch.float32,
}


@define(eq=False)
class _HostBuffer:
    tensor: torch.Tensor
    copied: torch.cuda.Event | None = None

    def wait(self) -> None:
        """Until the last copy from here is done."""
        if self.copied is not None:
            self.copied.synchronize()


@define(eq=False)
class Staging:
    """Host buffers in turn, and one on the device.

    Args:
        device: where the fields go.
        num_bytes: room of each buffer; more is made when a step needs it, unless `is_fixed`.
        is_fixed: the device buffer must stay where it is.
    """

    device: torch.device
    num_bytes: int
    is_fixed: bool = False
    _target: torch.Tensor = field(init=False)
    _hosts: list[_HostBuffer] = field(init=False)
    _turn: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._allocate(self.num_bytes)

    def _allocate(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._target = torch.zeros(num_bytes, dtype=torch.uint8, device=self.device)
        pinned = self.device.type == "cuda"
        self._hosts = [
            _HostBuffer(torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=pinned))
            for _ in range(NUM_HOST_BUFFERS)
        ]

    def holds(
        self, fields: Mapping[str, np.ndarray], room: Mapping[str, int] | None = None
    ) -> bool:
        """Whether these fields can be sent without a larger buffer."""
        return _lay_out(fields, room or {})[1] <= self.num_bytes

    def upload(
        self, fields: Mapping[str, np.ndarray], room: Mapping[str, int] | None = None
    ) -> dict[str, torch.Tensor]:
        """Copy the fields; returns them on the device, valid until the next upload.

        Args:
            fields: one-dimensional arrays by name, in the same order in every step with `room`.
            room: elements to keep free for a field; its place then depends on this alone.

        Raises:
            ValueError: a field is larger than its room, or a fixed buffer is too small.
        """
        places, end = _lay_out(fields, room or {})
        if end > self.num_bytes:
            if self.is_fixed:
                raise ValueError(f"staging: {end} bytes are needed, {self.num_bytes} are there")
            for host in self._hosts:
                host.wait()
            self._allocate(2 * end)
        self._turn = (self._turn + 1) % NUM_HOST_BUFFERS
        host = self._hosts[self._turn]
        host.wait()
        written = host.tensor.numpy()
        for name, array in fields.items():
            raw = array.view(np.uint8)
            written[places[name] : places[name] + raw.size] = raw
        self._target[:end].copy_(host.tensor[:end], non_blocking=True)
        if self.device.type == "cuda":
            host.copied = torch.cuda.Event()
            host.copied.record()
        return {
            name: self._target[places[name] : places[name] + array.nbytes].view(DTYPES[array.dtype])
            for name, array in fields.items()
        }


def _lay_out(
    fields: Mapping[str, np.ndarray], room: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """The offset of each field in bytes, and the end of all."""
    places, end = {}, 0
    for name, array in fields.items():
        places[name] = end
        size = room.get(name, array.size)
        if array.size > size:
            raise ValueError(f"staging: {name} has {array.size} elements, room is for {size}")
        end += -(-size * array.itemsize // ALIGNMENT) * ALIGNMENT
    return places, end
