"""The `headway` command: one file a subcommand. `main` is what the installed script calls."""

from __future__ import annotations

from framework.cli.app import app


def main() -> None:
    """Run the command with the arguments of the process, and exit."""
    app(prog_name="headway")
