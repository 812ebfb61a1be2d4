"""The group of subcommands, and what becomes of an error: one line and an exit status."""

from __future__ import annotations

import logging
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from framework.errors import ConfigError, HeadwayError, ModelError, PluginError, RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = (
    "generate",
    "serve",
    "swap",
    "compare",
    "capacity",
    "calibrate",
    "replay",
    "diff",
    "explain",
    "timeline",
    "plugins",
    "models",
    "check",
    "new-plugin",
    "oracle",
)
BAD_INPUT: Final = (ConfigError, RequestError, PluginError, ModelError)
FAILED, BAD, INTERRUPTED = 1, 2, 130


class Headway(click.Group):
    """Loads a subcommand when it is asked for, and turns errors into one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every subcommand, in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"framework.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> NoReturn:
        """Run and exit: 0, 1 on failure, 2 on bad input, 130 when interrupted."""
        named["standalone_mode"] = False
        try:
            status = super().main(args, *rest, **named)
        except click.ClickException as error:
            sys.exit(_complain(error.format_message(), BAD))
        except BAD_INPUT as error:
            sys.exit(_complain(str(error), BAD))
        except HeadwayError as error:
            sys.exit(_complain(str(error), FAILED))
        except (click.Abort, KeyboardInterrupt):
            sys.exit(_complain("interrupted", INTERRUPTED))
        except BrokenPipeError:
            sys.stderr.close()  # nobody reads: say nothing, not even at shutdown
            sys.exit(FAILED)
        except Exception as error:
            sys.exit(_complain(f"{type(error).__name__}: {error} (-v shows where)", FAILED))
        sys.exit(status if isinstance(status, int) else 0)


def _complain(message: str, status: int) -> int:
    """One line on stderr; the traceback only with -v."""
    if logging.getLogger("headway").isEnabledFor(logging.INFO):
        traceback.print_exc(file=sys.stderr)
    click.echo(f"headway: error: {' '.join(message.split())}", err=True)
    return status


@click.group(
    cls=Headway,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: headway compare fcfs priority --model smollm2 --prompts demo",
)
@click.version_option(package_name="headway")
def app() -> None:
    """Serve language models under pluggable scheduling policies, and compare the policies."""
