"""`headway timeline`: a recording for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from framework.cli.options import common_options
from framework.cli.report import headline, write_json
from framework.study.recorded import Recorded
from framework.study.timeline import write_timeline


@click.command("timeline", epilog="Example: headway timeline run.hw --out run.json")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Where to, compressed if it ends in .gz.  [default: FILE with .trace.json]",
)
@common_options
def command(file: Path, out: Path | None, json_path: Path | None) -> int:
    """Write the recording FILE as Trace Event JSON, which ui.perfetto.dev opens.

    A track per request, one of the steps, and counters for budget, KV blocks and queue.
    """
    place = out or file.with_suffix(".trace.json")
    count = write_timeline(Recorded(file), place)
    line = f"{count} events in {place}"
    write_json(json_path, {"headline": line, "events": count, "file": str(place)})
    headline(line)
    return 0
