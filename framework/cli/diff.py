"""`headway diff`: where two recorded policies part."""

from __future__ import annotations

from pathlib import Path

import click

from framework.cli.options import common_options
from framework.cli.report import headline, show_table, write_json
from framework.study.difference import find_difference
from framework.study.recorded import Recorded


@click.command("diff", epilog="Example: headway diff fcfs.hw vtc.hw")
@click.argument("one", type=click.Path(path_type=Path), metavar="FILE")
@click.argument("other", type=click.Path(path_type=Path), metavar="FILE")
@common_options
def command(one: Path, other: Path, json_path: Path | None) -> int:
    """Show the first step in which two recordings part, and what each policy saw there.

    Steps are compared by what was decided: tokens, victims, requests shed. Exit status 1 if they
    part.
    """
    pair = Recorded(one), Recorded(other)
    found = find_difference(*pair)
    told = [f"{each.path.name}: {each.policy}" for each in pair]
    for sentence in (*told, *found.notes):
        click.echo(sentence)
    line = f"{found.num_same} steps, all the same"
    if found.parts:
        title = f"step {found.num_same}"
        show_table(title, ("", one.name, other.name), found.rows())
        line = f"they part at step {found.num_same}"
        ended = [each.path.name for each, step in zip(pair, found.steps, strict=True) if not step]
        if ended:
            line += f": {ended[0]} has ended"
    data = {"num_same": found.num_same, "steps": found.steps, "notes": found.notes}
    write_json(json_path, {"headline": line, **data})
    headline(line)
    return int(found.parts)
