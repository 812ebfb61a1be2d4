"""Which devices the kernels run on, and making one current."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

import torch

from framework import ModelError


def check_device(device: str, dtype: str) -> None:
    """Raise ModelError if the kernels cannot run there."""
    kind, _, number = device.partition(":")
    if kind not in ("cuda", "cpu") or not (number.isdecimal() or kind == device):
        raise ModelError(f"device: got {device!r}, allowed: 'cuda', 'cuda:N' or 'cpu'")
    if kind == "cpu":
        _check_interpreter(device, dtype)
    elif not torch.cuda.is_available():
        raise ModelError(f"device: got {device!r}, but torch finds no GPU here")
    elif int(number or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"device: got {device!r}, but torch finds {torch.cuda.device_count()} GPUs, from "
            "'cuda:0' on"
        )


def _check_interpreter(device: str, dtype: str) -> None:
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise ModelError(
            f"device: got {device!r}, where kernels run only in Triton's interpreter, for tests: "
            "set TRITON_INTERPRET=1 before Python starts, or take the runner 'torch'"
        )
    if dtype == "bfloat16":
        raise ModelError(
            f"dtype: got 'bfloat16' on {device!r}, but Triton's interpreter multiplies its bit "
            "patterns; allowed: 'float32', 'float16'"
        )


def current(device: torch.device) -> AbstractContextManager[object]:
    """Kernels, streams and events inside are of this device, in this thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
