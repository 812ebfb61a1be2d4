"""The table of kernel sizes has every row, and other situations borrow one by the rules."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs
import pytest

pytest.importorskip("triton")

from runners.triton.configs import (
    ARCHS,
    DTYPES,
    FLOAT32,
    GROUPS,
    HEAD_DIMS,
    INTERPRETED,
    PHASES,
    TABLE,
    TUNED_ARCHS,
    AttentionConfig,
    Situation,
    current_arch,
    known_arch,
    lookup,
    read_table,
    table,
    write_table,
)

if TYPE_CHECKING:
    from pathlib import Path

SITUATIONS = [
    Situation(*values)
    for values in itertools.product(TUNED_ARCHS, HEAD_DIMS, GROUPS, DTYPES, PHASES)
]

DISTINCT = {
    situation: AttentionConfig(16, 16, 4, number) for number, situation in enumerate(SITUATIONS)
}
"""No two rows alike, so that it shows which one is borrowed."""


def test_every_situation_has_a_row_and_no_other_has_one() -> None:
    assert sorted(table()) == sorted(SITUATIONS)
    assert TUNED_ARCHS == ("gfx942", "sm_80", "sm_90")


def test_sizes_are_powers_of_two_that_a_matrix_instruction_takes() -> None:
    for situation, config in table().items():
        for size in (config.block_m, config.tile):
            assert size >= 16, situation
            assert size & (size - 1) == 0, situation
        assert config.block_m >= situation.group, situation
        assert config.num_warps in {1, 2, 4, 8, 16}, situation
        assert config.num_stages >= 1, situation


@pytest.mark.parametrize("situation", SITUATIONS[::11], ids=str)
def test_an_exact_row_comes_back_as_it_is(situation: Situation) -> None:
    asked = attrs.astuple(situation)
    assert lookup(*asked) == table()[situation]
    assert lookup(*asked, rows=DISTINCT) == DISTINCT[situation]


@pytest.mark.parametrize(
    ("head_dim", "group", "row"),
    [
        (16, 1, (64, 1)),
        (80, 4, (128, 4)),
        (129, 4, (256, 4)),
        (64, 2, (64, 1)),
        (64, 3, (64, 4)),
        (128, 6, (128, 8)),
        (96, 7, (128, 8)),
        (256, 16, (256, 8)),
    ],
)
def test_sizes_between_rows_borrow_the_next(
    head_dim: int, group: int, row: tuple[int, int]
) -> None:
    borrowed = DISTINCT[Situation("sm_80", *row, "float16", "decode")]
    assert lookup("sm_80", head_dim, group, "float16", "decode", rows=DISTINCT) == borrowed


def test_a_group_larger_than_every_row_gets_a_query_tile_that_holds_it() -> None:
    config = lookup("sm_90", 128, 71, "bfloat16", "decode")
    assert config.block_m == 128
    assert config.tile == table()[Situation("sm_90", 128, 8, "bfloat16", "decode")].tile


def test_torch_dtypes_serve_as_names() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        assert lookup("sm_80", 64, 4, dtype, "prefill") == lookup("sm_80", 64, 4, name, "prefill")


@pytest.mark.parametrize("arch", TUNED_ARCHS)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("phase", PHASES)
def test_float32_has_small_tiles_that_fit(arch: str, head_dim: int, phase: str) -> None:
    config = lookup(arch, head_dim, 4, "float32", phase)
    assert config.tile == FLOAT32.tile
    assert config.shared_bound(head_dim, 4) <= ARCHS[arch].shared_bytes
    assert lookup(arch, head_dim, 71, "float32", phase).block_m == 128


@pytest.mark.parametrize("arch", [*ARCHS, "sm_130"])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("phase", PHASES)
def test_a_borrowed_row_fits_in_the_shared_memory_of_the_borrower(
    arch: str, head_dim: int, phase: str
) -> None:
    config = lookup(arch, head_dim, 8, "bfloat16", phase)
    if arch not in TUNED_ARCHS:
        assert config.shared_bound(head_dim, 2) <= known_arch(arch).shared_bytes
    assert config.block_m >= 8


def test_a_borrowed_row_that_fits_is_unchanged() -> None:
    row = table()[Situation("sm_90", 64, 1, "bfloat16", "decode")]
    assert row.shared_bound(64, 2) <= ARCHS["sm_100"].shared_bytes
    assert lookup("sm_100", 64, 1, "bfloat16", "decode") == row


def test_the_interpreter_has_sizes_of_its_own() -> None:
    assert lookup("interpreter", 80, 3, "float32", "decode") is INTERPRETED


def test_the_cpu_is_the_interpreters() -> None:
    torch = pytest.importorskip("torch")
    assert current_arch(torch.device("cpu")) == "interpreter"
    with pytest.raises(ValueError, match="device is meta; the Triton kernels run on cuda"):
        current_arch(torch.device("meta"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("sm_75", 64, 1, "float16", "decode"), "arch is 'sm_75'; .* sm_80 and later"),
        (("gfx1100", 64, 1, "float16", "decode"), "arch is 'gfx1100'; .* gfx942"),
        (("sm_90", 320, 1, "float16", "decode"), "head_dim is 320; allowed are 1 to 256"),
        (("sm_90", 64, 0, "float16", "decode"), "group is 0; .* at least 1"),
        (("sm_90", 64, 1, "int8", "decode"), "dtype is int8; allowed are bfloat16"),
        (("sm_90", 64, 1, "float16", "both"), "phase is 'both'; allowed are prefill and decode"),
    ],
)
def test_what_no_row_serves_is_refused(asked: tuple[str, int, int, str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lookup(*asked)


def test_a_table_is_read_as_written_sorted_one_row_a_line(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write_table(path, dict(reversed(table().items())))
    assert read_table(path) == table()
    assert path.read_text() == TABLE.read_text()
    assert len(path.read_text().splitlines()) == len(SITUATIONS) + 2


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    row = {Situation("sm_80", 64, 1, "float16", "decode"): AttentionConfig(16, 64, 4, 2)}
    write_table(path, row)
    line = path.read_text().splitlines()[1]
    path.write_text(f"[{line}, {line}]")
    with pytest.raises(ValueError, match=r"table.json: two rows for Situation\(arch='sm_80'"):
        read_table(path)
    path.write_text(f"[{line.replace('tile', 'tiles')}]")
    with pytest.raises(ValueError, match=r"table.json: a row has .*'tiles'.*; it needs .*'tile'"):
        read_table(path)
