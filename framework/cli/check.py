"""`headway check`: whether a policy does what any policy must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from framework.cli.options import apply_options, common_options
from framework.cli.report import headline, progress, show_table, write_json
from framework.stack import parse_stack
from framework.testing.checking import CHECKS
from framework.testing.conformance import SLOWEST, SPEED, Report, examine
from framework.testing.subject import EXEMPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHAT = {
    "may_starve": "A request may wait as long as others keep coming.",
    "may_idle": "Requests may wait although there is room.",
    "may_take_turns": "Equal requests may interrupt each other.",
    "may_use_time": "Seconds count in what the policy decides.",
}
SAYS = {check.name: check.says for check in CHECKS} | {
    SPEED: f"Its hooks take at most {SLOWEST:.0f} times as long as a whole step with fcfs."
}

EXEMPTIONS_OF = {check.name: check.exemption for check in CHECKS} | {SPEED: None}


def _exemption_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option(
            f"--{name.replace('_', '-')}",
            name,
            is_flag=True,
            help=f"{WHAT[name]} As the plugin's attribute {name} = True.",
        )
        for name in EXEMPTIONS
    ]
    return apply_options(tuple(options), command)


@click.command("check", epilog="Example: headway check ./mine.py:Mine vtc lpm+victim_cost_aware")
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option(
    "--seeds",
    "num_seeds",
    type=click.IntRange(1),
    default=6,
    show_default=True,
    help="Random scenarios for each check that uses them.",
)
@click.option("--no-shrink", is_flag=True, help="Show a failing scenario as it was drawn.")
@_exemption_options
@common_options
def command(
    policies: tuple[str, ...],
    num_seeds: int,
    no_shrink: bool,
    json_path: Path | None,
    **exemptions: bool,
) -> int:
    """Check that each POLICY loses nobody, starves nobody, sees no true lengths, ...

    A POLICY is a stack as in `headway compare`. It is run in virtual time on random scenarios and
    some with a purpose. Each failure is a line `FAIL hook=... plugin=...` with Python that shows it
    again, shrunk to a few requests where Hypothesis is installed; the exit status is then 1.
    """
    reports: list[Report] = []
    given = {name: True if holds else None for name, holds in exemptions.items()}
    for policy in policies:
        with progress(f"checking {policy}", len(CHECKS) + 1) as advance:

            def on_check(_: str, advance: Callable[[int], None] = advance) -> None:
                advance(1)

            report = examine(
                parse_stack(policy),
                num_seeds=num_seeds,
                exemptions=given,
                shrinks=not no_shrink,
                on_check=on_check,
            )
        reports.append(report)
        _show(policy, report)
    line = "; ".join(
        f"{policy}: {_count(report)}" for policy, report in zip(policies, reports, strict=True)
    )
    write_json(json_path, {"headline": line, "reports": [each.as_dict() for each in reports]})
    headline(line)
    return 0 if all(report.passes for report in reports) else 1


def _show(policy: str, report: Report) -> None:
    failed = {failure.check: failure for failure in report.failures}
    rows = []
    for name, says in SAYS.items():
        if name in failed:
            rows.append((name, "FAIL", failed[name].sentence + _let_off(name)))
        elif name in report.exempt:
            rows.append((name, f"exempt: {report.exempt[name]}", says))
        elif name in report.passed:
            rows.append((name, "pass", says))
    show_table(f"{policy}: what any policy must do", ("check", "result", ""), rows)
    costs = [
        (
            f"{cost.plugin}.{cost.hook}",
            str(cost.calls),
            f"{cost.us_per_call:.1f}",
            f"{cost.us_per_step:.1f}",
        )
        for cost in report.hooks
    ]
    if costs:
        fcfs = f"a step with fcfs: {report.fcfs_us_per_step:.0f} µs"
        title = f"host time of the hooks, 64 slots ({fcfs})"
        show_table(title, ("hook", "calls", "µs a call", "µs a step"), costs, numbers=True)
    for failure in report.failures:
        click.echo(f"{failure}\n")


def _let_off(name: str) -> str:
    """What a policy says that means to be so."""
    exemption = EXEMPTIONS_OF[name]
    if exemption is None:
        return ""
    return f" (if that is meant: {exemption} = True in its class)"


def _count(report: Report) -> str:
    if report.passes:
        exempt = f", {len(report.exempt)} exempt" if report.exempt else ""
        return f"{len(report.passed)} checks passed{exempt}"
    return f"{len(report.failures)} checks FAILED, {len(report.passed)} passed"
