"""The command line: compile, show a bar, write the report, name what is wrong, say a last line."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click
from rich import progress
from rich.console import Console

# the interpreter takes the place of the compiler when triton is imported
os.environ.pop("TRITON_INTERPRET", None)

import triton

from runners.triton.aot.compiling import Compilers
from runners.triton.aot.report import judge, write_report
from runners.triton.aot.specs import list_specs
from runners.triton.configs import TABLE, read_table


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Write the figures here, as JSON.")
@click.option("--table", type=click.Path(path_type=Path, exists=True), help="Only these rows.")
@click.option("--arch", multiple=True, help="Only this architecture; may be repeated.")
@click.option("--kernel", multiple=True, help="Only this launcher; may be repeated.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
def main(
    out: Path | None, table: Path | None, arch: tuple[str, ...], kernel: tuple[str, ...], jobs: int
) -> None:
    """Compile every kernel for every architecture without a GPU; exit 1 if any is not good."""
    specs = [
        spec
        for spec in list_specs(read_table(table or TABLE), whole=table is None)
        if (not arch or spec.arch in arch) and (not kernel or spec.kernel in kernel)
    ]
    if not specs:
        raise click.UsageError(f"no launch has arch {arch or 'any'} and kernel {kernel or 'any'}")
    start = time.perf_counter()
    with progress.Progress(
        progress.TextColumn("compiling"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("", total=len(specs))
        with Compilers(jobs) as compilers:
            outcomes = compilers.compile(specs, lambda: bar.advance(task))
    verdict = judge(outcomes)
    if out:
        write_report(out, verdict, triton.__version__, time.perf_counter() - start)
    for complaint in verdict.complaints:
        click.echo(complaint)
    click.echo(verdict.summary())
    sys.exit(bool(verdict.complaints))


if __name__ == "__main__":
    main()
