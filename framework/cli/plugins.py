"""`headway plugins`: what is installed, and what each can decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from framework.cli.options import common_options
from framework.cli.report import headline, show_table, write_json
from framework.errors import PluginError
from framework.stack import implemented_hooks, installed_plugins, load_plugin

if TYPE_CHECKING:
    from pathlib import Path


@click.command("plugins", epilog="Example: headway plugins --json plugins.json")
@common_options
def command(json_path: Path | None) -> int:
    """List the installed plugins: name, version, and the hooks that each implements.

    Installed never means active: a stack is what you list with --plugin, or compare.
    """
    rows = [_describe(plugin) for plugin in installed_plugins()]
    told = [
        (row["name"], row["version"], row["distribution"], row["error"] or ", ".join(row["hooks"]))
        for row in rows
    ]
    show_table("installed plugins", ("plugin", "version", "from", "hooks"), told)
    line = f"{len(rows)} plugins installed"
    write_json(json_path, {"headline": line, "plugins": rows})
    headline(line)
    return 0


def _describe(plugin: Any) -> dict[str, Any]:
    hooks: list[str] = []
    error = None
    try:
        hooks = implemented_hooks(load_plugin(plugin.name))
    except PluginError as problem:
        error = str(problem)
    return {
        "name": plugin.name,
        "version": plugin.version,
        "distribution": plugin.distribution,
        "value": plugin.value,
        "hooks": hooks,
        "error": error,
    }
