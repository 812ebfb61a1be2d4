"""`headway oracle`: replay recorded scheduler decisions and compare every field."""

from __future__ import annotations

from pathlib import Path

import click

from framework.cli.options import common_options
from framework.cli.report import headline, progress, write_json
from framework.testing.oracle import Result, check_directory, recordings_in, summary


@click.command("oracle", epilog="Example: headway oracle tests/oracle/golden")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@common_options
def command(directory: Path, json_path: Path | None) -> int:
    """Replay every recording (*.json.gz) in DIR and name each difference.

    A difference names scenario, step, field, and both values. Exit status 1 if there is one.
    """
    results: list[Result] = []
    with progress("recordings", len(recordings_in(directory))) as advance:
        for name, difference in check_directory(directory):
            advance(1)
            results.append(Result(name, difference))
            if difference is not None:
                click.echo(f"{name}: {difference}")
    line = summary(results)
    rows = [
        {
            "name": result.name,
            "difference": None if result.difference is None else str(result.difference),
        }
        for result in results
    ]
    write_json(json_path, {"headline": line, "recordings": rows})
    headline(line)
    return int(any(result.difference is not None for result in results))
