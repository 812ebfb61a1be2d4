"""Normalised as transformers normalises, whatever the row's length, place and company."""

from __future__ import annotations

import pytest
import torch
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from runners.triton.kernels.rms_norm import rms_norm, rms_norm_reference
from tests.kernels.support import Guards, assert_close

EPSILON = 1e-6


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize(("num_rows", "hidden"), [(1, 64), (37, 80), (3, 576), (2, 4097)])
def test_rows_of_any_size_are_normalised(
    device: str, dtype: torch.dtype, num_rows: int, hidden: int, offset: float
) -> None:
    guards = Guards(device)
    x = guards.put(3 * torch.randn(1, num_rows, hidden).to(dtype))
    weight = guards.put(torch.randn(hidden).to(dtype))
    out = guards.empty(1, num_rows, hidden, dtype=dtype)
    got = rms_norm(x, weight, EPSILON, offset=offset, out=out)
    guards.check()
    assert got is out
    assert_close(out, rms_norm_reference(x, weight, EPSILON, offset=offset))


@pytest.mark.parametrize(("module_type", "offset"), [(LlamaRMSNorm, 0.0), (Gemma2RMSNorm, 1.0)])
def test_rounding_is_that_of_transformers(
    device: str, module_type: type[torch.nn.Module], offset: float
) -> None:
    module = module_type(576, EPSILON).to(device, torch.float16)
    torch.nn.init.normal_(module.weight)
    x = (5 * torch.randn(1, 12, 576)).to(device, torch.float16)
    got = rms_norm(x, module.weight.detach(), EPSILON, offset=offset)
    # only the order of the sum may differ; the other order of rounding would change a quarter
    assert (got == module(x)).float().mean() > 0.995


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_residual_holds_the_rounded_sum_and_that_is_normalised(
    device: str, dtype: torch.dtype, offset: float
) -> None:
    guards = Guards(device)
    x, residual = (guards.put(40 * torch.randn(1, 19, 80).to(dtype)) for _ in range(2))
    weight = guards.put(torch.randn(80).to(dtype))
    total = residual + x
    before = x.clone()
    got = rms_norm(x, weight, EPSILON, residual=residual, offset=offset)
    guards.check()
    assert torch.equal(residual, total)
    assert torch.equal(x, before)
    assert torch.equal(got, rms_norm(total, weight, EPSILON, offset=offset))


def test_heads_of_a_fused_projection_are_normalised_where_they_lie(
    device: str, dtype: torch.dtype
) -> None:
    guards = Guards(device)
    fused = guards.put(torch.randn(1, 7, 5, 52).to(dtype))
    whole = fused.clone()
    heads = fused[:, :, 1:4, :48]
    weight = guards.put(torch.randn(48).to(dtype))
    expected = rms_norm_reference(heads, weight, EPSILON)
    assert_close(rms_norm(heads, weight, EPSILON), expected)
    rms_norm(heads, weight, EPSILON, out=heads)
    guards.check()
    assert_close(heads, expected)
    heads.copy_(whole[:, :, 1:4, :48])
    assert torch.equal(fused, whole)


def test_rows_of_any_stride_are_normalised(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    wide, other = (guards.put(torch.randn(6, 200).to(dtype)) for _ in range(2))
    weight = guards.put(torch.randn(64).to(dtype))
    x, residual = wide[:, 8:72], other[::2, 100:164]
    expected = rms_norm_reference(x[:3], weight, EPSILON, residual=residual.clone())
    assert_close(rms_norm(x[:3], weight, EPSILON, residual=residual), expected)
    guards.check()


def test_a_row_is_the_same_alone_and_in_company(device: str, dtype: torch.dtype) -> None:
    x = torch.randn(40, 80, device=device).to(dtype)
    weight = torch.randn(80, device=device).to(dtype)
    together = rms_norm(x, weight, EPSILON)
    assert torch.equal(rms_norm(x[29:30], weight, EPSILON), together[29:30])


def test_no_row_gives_none(device: str, dtype: torch.dtype) -> None:
    x = torch.empty(1, 0, 64, device=device, dtype=dtype)
    weight = torch.ones(64, device=device, dtype=dtype)
    assert rms_norm(x, weight, EPSILON, residual=x.clone()).shape == (1, 0, 64)


def test_a_scattered_last_axis_is_refused(device: str) -> None:
    x = torch.randn(64, 4, device=device).t()
    with pytest.raises(ValueError, match=r"one of shape \[4, 64\] has stride 4 there"):
        rms_norm(x, torch.ones(64, device=device), EPSILON)
