"""The sampling kernel keeps and draws what `runners.common` keeps and draws."""

from __future__ import annotations

import pytest
import torch
from attrs import astuple, define

from runners.common.drawing import floors
from runners.common.philox import uniforms
from runners.triton.kernels.sample import sample_tokens, sample_tokens_reference
from tests.kernels.support import Guards

INFINITE = float("inf")


@define
class Params:
    """Per row: temperature, top_k, top_p, min_p, seeds, positions."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor

    @property
    def uniforms(self) -> torch.Tensor:
        found = uniforms(self.seeds.tolist(), self.positions.tolist())
        return torch.from_numpy(found).to(self.seeds.device)


def params(guards: Guards, *rows: tuple[float, int, float, float]) -> Params:
    """(temperature, top_k, top_p, min_p) a row; seeds and positions are random."""
    columns = list(zip(*rows, strict=True))
    draw = torch.Generator().manual_seed(1)
    size = (len(rows),)
    return Params(
        guards.put(torch.tensor(columns[0], dtype=torch.float32)),
        guards.put(torch.tensor(columns[1], dtype=torch.int32)),
        guards.put(torch.tensor(columns[2], dtype=torch.float32)),
        guards.put(torch.tensor(columns[3], dtype=torch.float32)),
        guards.put(torch.randint(-(2**63), 2**63 - 1, size, generator=draw)),
        guards.put(torch.randint(0, 2**34, size, generator=draw)),
    )


def mixed(guards: Guards, size: int, copies: int) -> Params:
    """All kinds of rows: each filter alone, together with the others, and extreme."""
    kinds = [
        (0.0, 0, 1.0, 0.0),
        (1.0, 0, 1.0, 0.0),
        (0.7, 5, 1.0, 0.0),
        (1.3, 0, 0.9, 0.0),
        (2.5, 0, 1.0, 0.1),
        (0.9, 20, 0.8, 0.05),
        (3.0, size // 2, 0.99, 0.0),
        (5.0, 0, 0.5, 0.0),
        (1.0, 1, 1.0, 0.0),
        (1.0, 0, 1e-6, 0.0),
        (1.0, size + 9, 1.0, 1.0),
        (1e-40, 3, 0.5, 0.5),
        (0.5, size - 1, 0.9999, 1e-6),
    ]
    return params(guards, *kinds * copies)


def sampled(
    guards: Guards, logits: torch.Tensor, given: Params, tile: int = 1024
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and limits of the kernel; checks the margins."""
    logits = guards.put(logits)
    tokens = guards.empty(len(logits), dtype=torch.int32)
    limits = guards.empty(len(logits), 3, dtype=torch.float32)
    sample_tokens(
        logits,
        given.temperature,
        given.top_k,
        given.top_p,
        given.min_p,
        given.seeds,
        given.positions,
        tokens,
        limits=limits,
        tile=tile,
    )
    guards.check()
    return tokens, limits


def assert_as_reference(
    guards: Guards, logits: torch.Tensor, given: Params, tile: int = 1024
) -> None:
    """The same tokens, and of every row that is not greedy the same tokens kept."""
    tokens, limits = sampled(guards, logits, given, tile)
    logits = logits.to(tokens.device).float()
    filters = given.temperature, given.top_k, given.top_p, given.min_p
    random = given.temperature > 0
    floor = floors(logits[random], *(values[random] for values in filters))
    kept = (logits[random] >= limits[random, :1]) & (logits[random] > -INFINITE)
    assert torch.equal(kept, (logits[random] >= floor[:, None]) & (logits[random] > -INFINITE))
    assert tokens.tolist() == sample_tokens_reference(logits, *filters, given.uniforms).tolist()


def noise(rows: int, size: int, scale: float = 3.0) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(size)) * scale


@pytest.mark.parametrize(("size", "tile", "copies"), [(97, 128, 3), (1000, 1024, 2), (97, 16, 1)])
def test_tokens_and_what_is_kept_are_the_references(
    device: str, dtype: torch.dtype, size: int, tile: int, copies: int
) -> None:
    guards = Guards(device)
    given = mixed(guards, size, copies)
    assert_as_reference(guards, noise(13 * copies, size).to(dtype), given, tile)


def test_a_large_vocabulary_in_tiles(device: str) -> None:
    guards = Guards(device)
    kinds = (1.0, 0, 1.0, 0.0), (1.0, 50, 0.9, 0.0), (2.0, 0, 0.95, 0.0), (0.0, 0, 1.0, 0.0)
    assert_as_reference(guards, noise(4, 50_257), params(guards, *kinds), 16384)


@pytest.mark.parametrize("tile", [128, 16])
def test_ties_are_kept_or_left_out_together(device: str, tile: int) -> None:
    guards = Guards(device)
    logits = (noise(13, 97) * 0.7).round()
    logits[:, ::9] = -0.0
    logits[:, 1::9] = 0.0
    assert_as_reference(guards, logits, mixed(guards, 97, 1), tile)


@pytest.mark.parametrize("finite", [1, 2, 4])
def test_of_a_row_with_few_finite_logits_only_those_are_drawn(device: str, finite: int) -> None:
    guards = Guards(device)
    given = mixed(guards, 97, 1)
    logits = torch.full((13, 97), -INFINITE)
    for row in range(13):
        logits[row, noise(13, 97)[row].argsort()[:finite]] = noise(13, finite)[row]
    assert_as_reference(guards, logits, given)
    tokens, _ = sampled(guards, logits, given)
    assert (logits.to(device).gather(1, tokens[:, None].long()) > -INFINITE).all()


def test_logits_of_all_magnitudes_are_told_apart(device: str) -> None:
    guards = Guards(device)
    exponents = torch.arange(-140, 100, 10).float()
    logits = torch.cat([exponents.exp2(), -exponents.exp2()]).repeat(24, 1)
    kinds = [(1e30, count, 1.0, 0.0) for count in range(1, 48, 2)]
    assert_as_reference(guards, logits, params(guards, *kinds), 16)


def test_greedy_takes_the_first_of_the_likeliest(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    logits = torch.zeros(3, 40, dtype=dtype)
    logits[0, [7, 33, 39]] = 2.0
    logits[1, [30, 38]] = 1.0
    logits[2] = -INFINITE
    tokens, limits = sampled(guards, logits, params(guards, *[(0.0, 3, 0.5, 0.5)] * 3), 16)
    assert tokens.tolist() == [7, 30, 0]
    assert limits.isnan().all()


def test_a_row_is_not_moved_by_the_others(device: str) -> None:
    guards, given = Guards(device), params(Guards(device), *[(1.0, 0, 0.9, 0.0)] * 8)
    logits = noise(8, 97)
    together, _ = sampled(guards, logits, given)
    backwards = Params(*(values.flip(0) for values in astuple(given, recurse=False)))
    assert sampled(guards, logits.flip(0), backwards)[0].tolist() == together.tolist()[::-1]


def test_rows_may_lie_apart(device: str) -> None:
    guards = Guards(device)
    given, tokens = params(guards, *[(1.0, 0, 1.0, 0.0)] * 3), guards.empty(3, dtype=torch.int32)
    apart = guards.put(noise(3, 128))[:, :97]
    sample_tokens(apart, *astuple(given, recurse=False), tokens)
    assert tokens.tolist() == sampled(guards, apart.contiguous(), given)[0].tolist()


def test_limits_make_the_distribution(device: str) -> None:
    guards = Guards(device)
    logits = noise(2, 97)
    given = params(guards, (0.7, 9, 1.0, 0.0), (1.5, 0, 1.0, 0.0))
    _, limits = sampled(guards, logits, given)
    floor, top, mass = (limits[:, index : index + 1].cpu() for index in range(3))
    chances = ((logits - top) / given.temperature[:, None].cpu()).exp() / mass
    kept = torch.where(logits >= floor, logits / given.temperature[:, None].cpu(), -INFINITE)
    torch.testing.assert_close(torch.where(logits >= floor, chances, 0.0), kept.softmax(-1))


def test_no_row_draws_nothing(device: str) -> None:
    none = torch.empty(0, device=device)
    sample_tokens(torch.empty(0, 9, device=device), *[none] * 7)
