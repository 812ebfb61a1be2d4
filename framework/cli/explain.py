"""`headway explain`: the life of one request in sentences."""

from __future__ import annotations

from pathlib import Path

import click

from framework.cli.options import common_options
from framework.cli.report import write_json
from framework.study.explaining import explain
from framework.study.recorded import Recorded


@click.command("explain", epilog="Example: headway explain run.hw r12")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.argument("request", metavar="REQUEST")
@common_options
def command(file: Path, request: str, json_path: Path | None) -> int:
    """Tell the life of REQUEST in the recording FILE.

    When it came, how long it waited and why, when it ran, lost its place, and ended.
    """
    sentences = explain(Recorded(file), request)
    write_json(json_path, {"headline": sentences[-1], "request": request, "sentences": sentences})
    click.echo("\n".join(sentences))
    return 0
