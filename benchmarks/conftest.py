"""Benchmarks import their loads from this folder, and start from a clean heap."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def clean_heap() -> Iterator[None]:
    """What earlier benchmarks left behind is not collected during this one."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
