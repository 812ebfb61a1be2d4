"""What a grammar forbids is -inf, and every other logit is as it was."""

from __future__ import annotations

import pytest
import torch

from runners.triton.kernels.bitmask import apply_bitmask, apply_bitmask_reference
from tests.kernels.support import Guards


def _words(allowed: torch.Tensor) -> torch.Tensor:
    """[N, V] bool as [N, ceil(V / 32)] int32; the bits past V are clear."""
    padded = torch.nn.functional.pad(allowed.long(), (0, -allowed.shape[1] % 32))
    words = (padded.unflatten(1, (-1, 32)) << torch.arange(32)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


@pytest.mark.parametrize("vocabulary", [1, 97, 1000, 4096 + 33])
def test_forbidden_tokens_are_minus_infinity(
    device: str, dtype: torch.dtype, vocabulary: int
) -> None:
    guards = Guards(device)
    logits = guards.put(torch.randn(4, vocabulary).to(dtype))
    allowed = torch.rand(3, vocabulary) < 0.5
    bitmask = guards.put(_words(allowed))
    rows = guards.put(torch.tensor([2, -1, 0, 2], dtype=torch.int32))
    expected = logits.clone()
    for index, row in ((0, 2), (2, 0), (3, 2)):
        expected[index, ~allowed[row].to(device)] = -torch.inf
    checked = logits.clone()
    apply_bitmask_reference(checked, bitmask, rows)
    apply_bitmask(logits, bitmask, rows)
    guards.check()
    assert torch.equal(logits, expected)
    assert torch.equal(checked, expected)


def test_rows_of_any_stride_and_wider_bitmasks_are_taken(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    wide = guards.put(torch.zeros(3, 200).to(dtype))
    words = torch.tensor([[-1, 0, 1, 0, 7, 7], [0, -1, 0, 1 << 30, 7, 7]], dtype=torch.int32)
    bitmask = guards.put(words)[:, :5]
    rows = guards.put(torch.tensor([1, 0, -1], dtype=torch.int64))
    apply_bitmask(wide[:, 20:140], bitmask, rows)
    guards.check()
    allowed = [(wide[index, 20:140] == 0).nonzero().flatten().tolist() for index in range(3)]
    assert allowed == [list(range(32, 64)), [*range(32), 64], list(range(120))]
    assert not wide[:, :20].any()
    assert not wide[:, 140:].any()


def test_no_row_is_no_work(device: str) -> None:
    rows = torch.empty(0, dtype=torch.int32, device=device)
    bitmask = torch.zeros(1, 4, dtype=torch.int32, device=device)
    apply_bitmask(torch.empty(0, 97, device=device), bitmask, rows)


def test_a_narrow_bitmask_is_refused(device: str) -> None:
    rows = torch.zeros(1, dtype=torch.int32, device=device)
    bitmask = torch.zeros(1, 3, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="bitmask has 3 words a row; 97 tokens need 4"):
        apply_bitmask(torch.zeros(1, 97, device=device), bitmask, rows)
