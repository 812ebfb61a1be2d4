"""`headway replay`: run a recording again and compare every step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from framework.cli.options import common_options
from framework.cli.report import headline, progress, write_json
from framework.engine.models import load_model, resolve_model
from framework.stack import parse_stack
from framework.study.recorded import Recorded
from framework.study.replaying import Replayed, replay

if TYPE_CHECKING:
    from framework.config import SchedulerConfig


@click.command("replay", epilog="Example: headway replay run.hw --model smollm2")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--model",
    metavar="M",
    help="Execute the plans on this model: a name that `headway models` lists, or a directory.  "
    "[default: virtual time alone]",
)
@click.option("--runner", default="torch", show_default=True, help="torch (CPU) or triton (GPU).")
@click.option(
    "--stack",
    metavar="STACK",
    help="Its plugins, where the recorded ones have no name: one+another.",
)
@common_options
def command(
    file: Path, model: str | None, runner: str, stack: str | None, json_path: Path | None
) -> int:
    """Run a recording again and compare every step, bit for bit.

    FILE was written by --record. With --model, a real runner executes each plan; clock and output
    lengths are the recorded ones, the tokens its own. Exit status 1 at the first difference.
    """
    recorded = Recorded(file)
    made: list[Any] = []

    def load(config: SchedulerConfig) -> Any:
        assert model is not None
        made.append(load_model(resolve_model(model), config, runner=runner).runner)
        return made[0]

    try:
        with progress(recorded.policy, len(recorded.header["workload"]["arrivals"])) as advance:
            found = replay(
                recorded,
                None if stack is None else parse_stack(stack),
                runner=None if model is None else load,
                on_end=advance,
            )
    finally:
        for each in made:
            each.close()
    line = _sentence(found, model)
    parting = None if found.parting is None else str(found.parting)
    write_json(json_path, {"headline": line, "steps": found.num_steps, "parting": parting})
    headline(line)
    return int(found.parting is not None)


def _sentence(found: Replayed, model: str | None) -> str:
    where = "in virtual time"
    if model is not None:
        where = f"on {model}, which sampled {found.num_real_tokens} tokens"
    if found.parting is None:
        return f"{found.num_steps} steps, the same to the bit {where}"
    return f"after {found.num_steps} steps that were the same {where}: {found.parting}"
