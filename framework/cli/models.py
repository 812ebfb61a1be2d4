"""`headway models`: names that --model takes, and where they lie."""

from __future__ import annotations

from pathlib import Path

import click

from framework.cli.options import common_options
from framework.cli.report import headline, write_json
from framework.engine.models import list_models


@click.command("models", epilog="Example: headway models")
@common_options
def command(json_path: Path | None) -> int:
    """List model names and their directories. Any other model directory works as well.

    A packaged model is converted when it is first asked for, here too.
    """
    rows = []
    for name, found in list_models():
        is_there = isinstance(found, Path)
        click.echo(f"{name}  {found if is_there else f'not available: {found}'}")
        rows.append(
            {
                "name": name,
                "directory": str(found) if is_there else None,
                "error": None if is_there else str(found),
            }
        )
    num_there = sum(row["directory"] is not None for row in rows)
    line = f"{num_there} of {len(rows)} models available"
    write_json(json_path, {"headline": line, "models": rows})
    headline(line)
    return 0
