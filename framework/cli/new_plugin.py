"""`headway new-plugin`: a project of one's own around a policy."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

import click

from framework.cli.options import common_options
from framework.cli.report import headline, write_json
from framework.errors import ConfigError, bad_field
from framework.stack import installed_plugins

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA: Final = "data/new_plugin"
PLACES: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "policy.py": "$package/__init__.py",
    "test_policy.py": "tests/test_$name.py",
    "bench_policy.py": "benchmarks/bench_$name.py",
}
"""{template: where it goes}."""


@click.command(
    "new-plugin", epilog="Example: headway new-plugin shortest_prompt && cd headway-shortest-prompt"
)
@click.argument("name", metavar="NAME")
@click.option(
    "--dir",
    "parent",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    metavar="D",
    help="Where the project's folder is made.  [default: here]",
)
@common_options
def command(name: str, parent: Path, json_path: Path | None) -> int:
    """Write a project with a policy called NAME, its tests and a benchmark.

    NAME is what stacks call the policy: lower-case words joined by _ or -. The project is a folder
    headway-NAME of its own, can be installed with pip, and passes its tests as it stands.
    """
    words = _words(name)
    folder = parent / words["distribution"]
    if folder.exists():
        raise ConfigError(f"NAME: {folder} exists already; give another name, or another --dir")
    written = _write(folder, words)
    line = f"wrote {folder}: edit {written['policy.py'].relative_to(folder)}, then run pytest there"
    places = {template: str(path) for template, path in written.items()}
    write_json(json_path, {"headline": line, "folder": str(folder), "files": places})
    headline(line)
    return 0


def _words(name: str) -> dict[str, str]:
    """What the templates call the policy."""
    snake = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", snake):
        raise bad_field("NAME", name, "lower-case words joined by _ or -, such as shortest_prompt")
    taken = {plugin.name: plugin.distribution for plugin in installed_plugins()}
    if snake in taken:
        raise ConfigError(f"NAME: {taken[snake]} has installed a plugin {snake!r} already")
    return {
        "name": snake,
        "package": f"headway_{snake}",
        "distribution": f"headway-{snake.replace('_', '-')}",
        "class_name": "".join(word.capitalize() for word in snake.split("_")),
    }


def _write(folder: Path, words: Mapping[str, str]) -> dict[str, Path]:
    written = {}
    for template, place in PLACES.items():
        source = files("framework").joinpath(DATA, f"{template}.txt")
        text = Template(source.read_text(encoding="utf-8")).substitute(words)
        path = folder / Template(place).substitute(words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written[template] = path
    return written
