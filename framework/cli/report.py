"""What subcommands print and write: tables, progress, JSON, the headline."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NARROWEST: Final = 120
WIDEST: Final = 10_000


def write_json(path: Path | None, data: Any) -> None:
    """Write data as JSON, whole or not at all; nothing if no file was asked for.

    What is there and no regular file, such as a device or a pipe, is written to, never replaced.
    """
    if path is None:
        return
    text = json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()  # a link stays one
    descriptor, name = tempfile.mkstemp(suffix=".json.tmp", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def headline(text: str) -> None:
    """The last line: what came of it, in one sentence."""
    click.echo(text)


def show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False
) -> None:
    """Print a table; where there is no terminal it may be wider than eighty columns.

    With `numbers` every column but the first is flush right, and nothing is folded or cut: columns
    that do not fit go into a table of their own, under the same first column.
    """
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415  (rich is slow to import)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for index, name in enumerate(columns):
        right = numbers and index > 0
        justify: Literal["right", "left"] = "right" if right else "left"
        table.add_column(name, justify=justify, no_wrap=numbers, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = max(NARROWEST, console.width)
    if numbers:
        wanted = console.measure(table, options=console.options.update(max_width=WIDEST)).minimum
        if wanted > console.width and len(columns) > 2:
            half = (len(columns) + 1) // 2
            for some in (slice(1, half), slice(half, None)):
                own = [(row[0], *row[some]) for row in rows]
                show_table(title, (columns[0], *columns[some]), own, numbers=True)
            return
        console.width = max(wanted, console.width)
    console.print(table)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, if that is a terminal; call what it yields with each advance."""
    with study_progress(title) as tell:
        tell(0, total)
        yield lambda count: tell(count, total)


@contextmanager
def study_progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """The same where the total comes later: call it with each advance and the total, if known."""
    from rich import progress as bars  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
    )
    hidden = not console.is_terminal
    with bars.Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(title, total=None)
        yield lambda count, total: bar.update(task, advance=count, total=total)


def share(part: int, whole: int) -> str:
    """A share in percent, or '-' of nothing."""
    return f"{100 * part / whole:.0f}%" if whole else "-"


def rate(value: float | None) -> str:
    """Tokens a second, or '-'."""
    return "-" if value is None else f"{value:.1f}"


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
