"""The command line: search on this machine's GPU, say what each row gained, write the table."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import click
import torch
from triton.testing import do_bench

from runners.triton.aot.compiling import Compilers
from runners.triton.configs import TABLE, TUNED_ARCHS, current_arch, read_table, write_table
from runners.triton.tuner.bench import Bench
from runners.triton.tuner.machine import ThisMachine
from runners.triton.tuner.search import Search


@click.command()
@click.option("--seconds", default=120.0, show_default=True, help="Time for the whole search.")
@click.option("--table", type=click.Path(path_type=Path, exists=True), help="Rows to start from.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The table to write.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Compilers at once.")
def main(seconds: float, table: Path | None, out: Path, jobs: int) -> None:
    """Look for faster sizes of the attention kernels on this machine's GPU."""
    if not torch.cuda.is_available():
        raise click.UsageError("there is no GPU here; sizes are timed on one")
    device = torch.device("cuda", torch.cuda.current_device())
    arch = current_arch(device)
    if arch not in TUNED_ARCHS:
        raise click.UsageError(
            f"the GPU is {arch}; the table has rows for {', '.join(TUNED_ARCHS)}"
        )
    rows = read_table(table or TABLE)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    measure = partial(do_bench, warmup=10, rep=40, return_mode="median")
    with Compilers(jobs) as compilers:
        machine = ThisMachine(compilers, Bench(device, processors, measure))
        search = Search(rows, machine, batch=max(8, jobs), clock=time.monotonic)
        for finding in search.run(arch, seconds):
            click.echo(str(finding))
            write_table(out, rows)
    for situation in search.unreached:
        click.echo(f"not reached: {situation}")


if __name__ == "__main__":
    main()
