"""Keys and values go where the slots say, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from runners.triton.kernels.store_kv import store_kv, store_kv_reference
from tests.kernels.support import Guards


@pytest.mark.parametrize(("kv_heads", "head_dim", "value_dim"), [(1, 64, 64), (3, 80, 48)])
@pytest.mark.parametrize("slots", [[5], [0, 31, -1, 17], [-1, -1]])
def test_slots_are_written_and_nothing_else(
    device: str, dtype: torch.dtype, kv_heads: int, head_dim: int, value_dim: int, slots: list[int]
) -> None:
    guards = Guards(device)
    # a view of a fused projection: token and head strides are not those of a contiguous tensor
    fused = guards.put(torch.randn(len(slots), kv_heads + 1, head_dim + value_dim, dtype=dtype))
    key, value = fused[:, 1:, :head_dim], fused[:, 1:, head_dim:]
    keys = guards.empty(4, 8, kv_heads, head_dim, dtype=dtype)
    values = guards.empty(4, 8, kv_heads, value_dim, dtype=dtype)
    where = guards.put(torch.tensor(slots, dtype=torch.int32))
    expected = keys.clone(), values.clone()
    store_kv_reference(key, value, *expected, where)
    store_kv(key, value, keys, values, where)
    guards.check()
    torch.testing.assert_close(keys, expected[0], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(values, expected[1], rtol=0, atol=0, equal_nan=True)


def test_no_token_writes_nothing(device: str) -> None:
    guards = Guards(device)
    key = torch.empty(0, 2, 16, device=device)
    keys = guards.empty(2, 4, 2, 16, dtype=torch.float32)
    store_kv(key, key, keys, keys, torch.empty(0, dtype=torch.int32, device=device))
    assert keys.isnan().all()
