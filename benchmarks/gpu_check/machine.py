"""What the machine is, and the bandwidth and matrix rate that plain code reaches on it."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from benchmarks.gpu_check.part import Check, Figures, Item

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.gpu_check.place import Place

QUERY = ("driver_version", "power.limit", "clocks.max.sm", "clocks.max.mem")
PACKAGES = ("torch", "triton", "transformers", "numpy", "attrs", "pluggy")
READ_TILE = 8192
PROGRAMS_A_PROCESSOR = 8


def items(check: Check) -> Iterator[Item]:
    """Facts, then rates."""
    place = check.place
    yield Item("facts", lambda: facts(place))
    yield Item("read", lambda: read(place, 2**16 if place.is_toy else 2**32))
    yield Item("copy", lambda: copy(place, 2**16 if place.is_toy else 2**32))
    yield Item("matmul", lambda: matmul(place, 64 if place.is_toy else 8192))


def conclude(found: dict[str, Figures]) -> Figures:
    """The two ceilings."""
    read_rates = found.get("read", {})
    return {
        "read_tb_s": max(read_rates.get("kernel_tb_s", 0.0), read_rates.get("torch_tb_s", 0.0)),
        "matmul_tflops": found.get("matmul", {}).get("tflops"),
    }


def facts(place: Place) -> Figures:
    """Names and versions."""
    found: Figures = {
        "python": platform.python_version(),
        "processor": platform.machine(),
        **{name: _version(name) for name in PACKAGES},
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }
    if place.is_toy:
        return found
    properties = torch.cuda.get_device_properties(place.device)
    return {
        **found,
        "gpu": properties.name,
        "arch": f"{properties.major}.{properties.minor}",
        "processors": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "cache_mib": round(getattr(properties, "L2_cache_size", 0) / 2**20, 1),
        **_driver(),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _driver() -> Figures:
    """By nvidia-smi, where there is one."""
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return {"driver": repr(error)}
    values = done.stdout.splitlines()[0].split(", ")
    return dict(zip(("driver", *QUERY[1:]), values, strict=False))


@triton.jit
def read_kernel(source, sums, turns, tile: tl.constexpr):
    """One program adds up every so many tiles."""
    program = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, tile)
    total = tl.zeros([tile], tl.float32)
    for turn in range(turns):
        start = (program + turn * tl.num_programs(0)) * tile
        total += tl.load(source + start + lane)
    tl.store(sums + program, tl.sum(total, 0))


def read(place: Place, num_bytes: int) -> Figures:
    """Bytes read a second, by a kernel of ours and by torch's sum."""
    tile = 256 if place.is_toy else READ_TILE
    programs = place.num_processors * PROGRAMS_A_PROCESSOR
    turns = num_bytes // (4 * tile * programs)
    source = torch.ones(turns * programs * tile, dtype=torch.float32, device=place.device)
    sums = torch.zeros(programs, dtype=torch.float32, device=place.device)
    by_kernel = place.seconds_a_call(
        [lambda: read_kernel[(programs,)](source, sums, turns, tile, num_warps=8)]
    )
    assert float(sums.double().sum()) == source.numel(), "not every value was read"
    by_torch = place.seconds_a_call([source.sum])
    return {
        "bytes": source.nbytes,
        "kernel_tb_s": round(source.nbytes / by_kernel / 1e12, 6),
        "torch_tb_s": round(source.nbytes / by_torch / 1e12, 6),
    }


def copy(place: Place, num_bytes: int) -> Figures:
    """Bytes read and written a second by torch's copy."""
    source = torch.ones(num_bytes // 4, dtype=torch.float32, device=place.device)
    target = torch.empty_like(source)
    seconds = place.seconds_a_call([lambda: target.copy_(source)])
    return {"bytes": source.nbytes, "tb_s": round(2 * source.nbytes / seconds / 1e12, 6)}


def matmul(place: Place, size: int) -> Figures:
    """The rate of torch's product of two square matrices of random numbers."""
    left, right = (torch.randn(size, size, device=place.device).to(place.dtype) for _ in range(2))
    out = torch.empty_like(left)
    seconds = place.seconds_a_call([lambda: torch.mm(left, right, out=out)])
    return {"size": size, "tflops": round(2 * size**3 / seconds / 1e12, 6)}
