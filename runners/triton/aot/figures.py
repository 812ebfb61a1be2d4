"""What a compiled kernel takes of a GPU, read from the compilers' own output.

NVIDIA: the resource table of the cubin by `cuobjdump`, which comes with Triton, and the
instructions of the PTX. AMD: the metadata and the instructions of the assembly text.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen
from triton import knobs

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel

PTX = {
    "wgmma": r"wgmma\.mma_async",
    "mma": r"\bmma\.sync",
    "mfma": r"\bv_mfma_",
    "loads_128": r"\bld\.global[\w.:]*\.(v4\.[bfu]32|v2\.[bfu]64)"
    r"|\bcp\.async\.c[ag]\.shared\.global[^;]*, (0x10|16)\b",
    "loads_16": r"\bld\.global[\w.:]*(?<!\.v[248])\.[bu]16\b",
    "cp_async": r"\bcp\.async\.c[ag]\.shared\.global",
}
GCN = PTX | {
    "loads_128": r"\b(global|buffer)_load_dwordx4\b",
    "loads_16": r"\b(global|buffer)_load_u?short",
    "cp_async": r"\b(global|buffer)_load_(dword\w*|lds_\w+)[^\n]* lds\b",
}


@frozen
class Figures:
    """What one kernel takes.

    Attributes:
        registers: of one thread.
        shared_bytes: of one program.
        spill_bytes: of local memory that one thread's registers spill into.
        instructions: how often each kind stands in the text; `loads_128` and `loads_16` are loads
            of so many bits a thread from global memory, `cp_async` those straight to shared memory.
    """

    registers: int
    shared_bytes: int
    spill_bytes: int
    instructions: dict[str, int]


def read_figures(kernel: CompiledKernel) -> Figures:
    """The figures of a kernel for NVIDIA or AMD."""
    if "ptx" in kernel.asm:
        registers, spill_bytes = read_cubin(kernel.asm["cubin"])
        text, patterns = kernel.asm["ptx"], PTX
    else:
        text, patterns = kernel.asm["amdgcn"], GCN
        registers, spill_bytes = read_gcn(text)
    counts = {name: len(re.findall(pattern, text)) for name, pattern in patterns.items()}
    return Figures(registers, kernel.metadata.shared, spill_bytes, counts)


def read_cubin(cubin: bytes) -> tuple[int, int]:
    """(registers, spill bytes): a kernel of Triton's has a stack only where registers spill."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        shown = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "-res-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", shown)
    if not found:
        raise ValueError(f"cuobjdump shows no registers: {shown!r}")
    return int(found[1]), int(found[2])


def read_gcn(text: str) -> tuple[int, int]:
    """(registers, spill bytes): scalar registers spill into vector ones, which costs nothing."""
    registers, spills, scratch = (
        int(re.findall(rf"^\s*\.{name}:\s+(\d+)", text, re.MULTILINE)[0])
        for name in ("vgpr_count", "vgpr_spill_count", "private_segment_fixed_size")
    )
    return registers, max(4 * spills, scratch)
