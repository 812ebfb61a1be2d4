"""`headway oracle`: replay recorded scheduler decisions and compare every field."""

from __future__ import annotations

from pathlib import Path

import click

from framework.cli.options import common_options
from framework.cli.report import headline, progress, write_json
from framework.errors import RequestError


@click.command("oracle", epilog="Example: headway oracle tests/oracle/golden")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@common_options
def command(directory: Path, json_path: Path | None) -> int:
    """Replay every recording (*.json.gz) in DIR and name each difference.

    A difference names scenario, step, field, and both values. Exit status 1 if there is one.
    """
    paths = list(directory.glob("*.json.gz"))
    if not paths:
        raise RequestError(f"{directory}: holds no recording; allowed: a folder of *.json.gz")
    from framework.testing.oracle import check_directory  # noqa: PLC0415

    rows = []
    with progress("scenarios", len(paths)) as advance:
        for name, difference in check_directory(directory):
            advance(1)
            rows.append(
                {"name": name, "difference": None if difference is None else str(difference)}
            )
            if difference is not None:
                click.echo(f"{name}: {difference}")
    num_differing = sum(row["difference"] is not None for row in rows)
    line = f"{len(rows) - num_differing} same, {num_differing} differ"
    write_json(json_path, {"headline": line, "scenarios": rows})
    headline(line)
    return 1 if num_differing else 0
