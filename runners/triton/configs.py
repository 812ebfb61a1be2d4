"""Which block sizes a kernel runs with: one row of `table.json` for each situation.

The rows are chosen by the tuner on a GPU, or by hand where none was at hand; there is no run-time
autotuning, so start-up is the same every time and every row can be compiled ahead. `lookup` says
by which rules a situation without a row of its own borrows one.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

KIB = 1024
HEAD_DIMS = (64, 128, 256)
GROUPS = (1, 4, 8)
DTYPES = ("bfloat16", "float16")
PHASES = ("prefill", "decode")
TABLE = Path(__file__).with_name("table.json")


@frozen
class AttentionConfig:
    """How an attention kernel is cut up.

    Attributes:
        block_m: rows of a program's query tile, (tokens x query heads of one KV head) packed; a
            power of two of at least 16.
        tile: keys a program looks at in one turn; a power of two of at least 16.
        num_warps, num_stages: Triton's launch options.
    """

    block_m: int
    tile: int
    num_warps: int
    num_stages: int

    def shared_bound(self, head_dim: int, itemsize: int) -> int:
        """More bytes of shared memory than a program of these sizes can need."""
        return (self.block_m + 2 * self.tile * self.num_stages) * head_dim * itemsize


INTERPRETED = AttentionConfig(block_m=16, tile=128, num_warps=4, num_stages=2)
"""For the interpreter, where only the number of programs and turns counts."""

FLOAT32 = AttentionConfig(block_m=16, tile=16, num_warps=8, num_stages=2)
"""float32 is multiplied exactly, on NVIDIA without matrix instructions: only small tiles fit."""


@frozen(order=True)
class Situation:
    """What a row of the table is for.

    Attributes:
        group: query heads that share one KV head.
        dtype: of the cache, by torch's name.
        phase: prefill (`paged_attention`) or decode (`split_decode`).
    """

    arch: str
    head_dim: int
    group: int
    dtype: str
    phase: str


@frozen
class Arch:
    """A GPU architecture.

    Attributes:
        rows: the architecture whose rows it uses, by its matrix instructions.
        shared_bytes: the shared memory that one program may have.
    """

    rows: str
    shared_bytes: int


ARCHS = {
    "sm_80": Arch("sm_80", 163 * KIB),
    "sm_86": Arch("sm_80", 99 * KIB),
    "sm_87": Arch("sm_80", 163 * KIB),
    "sm_89": Arch("sm_80", 99 * KIB),
    "sm_90": Arch("sm_90", 227 * KIB),
    "sm_100": Arch("sm_90", 227 * KIB),
    "sm_103": Arch("sm_90", 227 * KIB),
    "sm_120": Arch("sm_80", 99 * KIB),
    "sm_121": Arch("sm_80", 99 * KIB),
    "gfx90a": Arch("gfx942", 64 * KIB),
    "gfx942": Arch("gfx942", 64 * KIB),
    "gfx950": Arch("gfx942", 160 * KIB),
}
TUNED_ARCHS = tuple(sorted({arch.rows for arch in ARCHS.values()}))


def known_arch(name: str) -> Arch:
    """The architecture of this name; a later NVIDIA one than those listed is taken for the least.

    Raises:
        ValueError: an architecture for which no rows can be borrowed.
    """
    if name in ARCHS:
        return ARCHS[name]
    number = name.removeprefix("sm_")
    if name.startswith("sm_") and number.isdecimal() and int(number) > 80:
        return Arch("sm_80", 99 * KIB)
    raise ValueError(
        f"arch is {name!r}; the attention kernels have sizes for sm_80 and later NVIDIA"
        " architectures, for gfx90a, gfx942 and gfx950, and for 'interpreter'"
    )


def lookup(
    arch: str,
    head_dim: int,
    group: int,
    dtype: torch.dtype | str,
    phase: str,
    *,
    rows: Mapping[Situation, AttentionConfig] | None = None,
) -> AttentionConfig:
    """The sizes for a situation: its own row of the table, or the row nearest to it.

    - head_dim: the next larger one of the table; that is what the kernels pad to.
    - group: the nearest one of the table, of two equally near the larger; the query tile then
      grows until it holds the whole group.
    - dtype: float32 has `FLOAT32` for a row, of every architecture and size.
    - arch: see `ARCHS`; a borrowed row loses stages, then half its tile, then half its query
      tile, until it fits in that architecture's shared memory. float32 is made to fit likewise.
    - arch "interpreter": always `INTERPRETED`.

    Args:
        rows: a whole table in the place of the package's.

    Raises:
        ValueError: a value outside these rules.
    """
    if arch == "interpreter":
        return INTERPRETED
    known = known_arch(arch)
    dtype = str(dtype).removeprefix("torch.")
    check(head_dim, group, dtype, phase)
    row = Situation(
        arch=known.rows,
        head_dim=min(size for size in HEAD_DIMS if size >= head_dim),
        group=min(GROUPS, key=lambda size: (abs(size - group), -size)),
        dtype=dtype,
        phase=phase,
    )
    config = FLOAT32 if dtype == "float32" else (rows or table())[row]
    while config.block_m < group:
        config = attrs.evolve(config, block_m=2 * config.block_m)
    if dtype == "float32" or known.rows != arch:
        itemsize = 4 if dtype == "float32" else 2
        return fitted(config, row.head_dim, group, itemsize, known.shared_bytes)
    return config


def check(head_dim: int, group: int, dtype: str, phase: str) -> None:
    """Refuse what no row can serve."""
    if not 1 <= head_dim <= HEAD_DIMS[-1]:
        raise ValueError(f"head_dim is {head_dim}; allowed are 1 to {HEAD_DIMS[-1]}")
    if group < 1:
        raise ValueError(f"group is {group}; query heads per KV head are at least 1")
    if dtype not in (*DTYPES, "float32"):
        raise ValueError(f"dtype is {dtype}; allowed are {', '.join(DTYPES)} and float32")
    if phase not in PHASES:
        raise ValueError(f"phase is {phase!r}; allowed are {' and '.join(PHASES)}")


def fitted(
    config: AttentionConfig, head_dim: int, group: int, itemsize: int, limit: int
) -> AttentionConfig:
    """The same sizes with fewer stages, then smaller tiles, until `limit` bytes hold them."""
    while config.shared_bound(head_dim, itemsize) > limit:
        if config.num_stages > 1:
            config = attrs.evolve(config, num_stages=config.num_stages - 1)
        elif config.tile > 16:
            config = attrs.evolve(config, tile=config.tile // 2)
        elif config.block_m // 2 >= max(16, group):
            config = attrs.evolve(config, block_m=config.block_m // 2)
        else:
            break
    return config


def current_arch(device: torch.device) -> str:
    """The architecture of a device: "sm_90", "gfx942"; "interpreter" for the CPU.

    Raises:
        ValueError: neither a CPU nor a GPU of CUDA or ROCm.
    """
    import torch  # noqa: PLC0415

    if device.type == "cpu":
        return "interpreter"
    if device.type != "cuda":
        raise ValueError(
            f"device is {device}; the Triton kernels run on cuda, or interpreted on cpu"
        )
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


@cache
def table() -> Mapping[Situation, AttentionConfig]:
    """The rows that come with the package."""
    return read_table(TABLE)


def read_table(path: Path) -> dict[Situation, AttentionConfig]:
    """The rows of a table file.

    Raises:
        ValueError: a row with other fields than a situation's and a config's, or one given twice.
    """
    of_situation, of_config = (
        [field.name for field in attrs.fields(kind)] for kind in (Situation, AttentionConfig)
    )
    rows: dict[Situation, AttentionConfig] = {}
    for row in json.loads(path.read_text()):
        if sorted(row) != sorted(of_situation + of_config):
            raise ValueError(
                f"{path.name}: a row has {sorted(row)}; it needs {sorted(of_situation + of_config)}"
            )
        situation = Situation(**{name: row[name] for name in of_situation})
        if situation in rows:
            raise ValueError(f"{path.name}: two rows for {situation}; one is allowed")
        rows[situation] = AttentionConfig(**{name: row[name] for name in of_config})
    return rows


def write_table(path: Path, rows: Mapping[Situation, AttentionConfig]) -> None:
    """Write rows sorted, one a line, so that a change of one reads as one line."""
    lines = [
        json.dumps(attrs.asdict(situation) | attrs.asdict(config))
        for situation, config in sorted(rows.items())
    ]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
