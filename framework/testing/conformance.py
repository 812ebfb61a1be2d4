"""Conformance: whether a policy does what any policy must, whatever it decides.

    def test_mine_conforms() -> None:
        check_policy([Mine])

A policy that cannot keep one of the promises says so with a class attribute: `may_starve`,
`may_idle`, `may_take_turns` (among equals), `may_use_time` (seconds count in what it decides).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import define, field, frozen

from framework.errors import HeadwayError
from framework.testing.checking import CHECKS, Check
from framework.testing.playing import play
from framework.testing.proxies import hook_rows
from framework.testing.scenarios import Scenario, busy_server, spec_text
from framework.testing.shrinking import shrink
from framework.testing.subject import CheckError, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from framework.loading import Spec

SPEED: Final = "speed"
SLOWEST: Final = 20.0
"""A policy's hooks may take so many times as long as a whole step of the scheduler with fcfs."""


@frozen
class Failure:
    """One check that failed.

    Attributes:
        check: its name. hook, plugin: whose doing it is. sentence: what was wrong.
        code: Python that shows it again, or "" where it depends on the machine.
    """

    check: str
    hook: str
    plugin: str
    sentence: str
    code: str = ""

    def __str__(self) -> str:
        shown = f"\n{self.code}" if self.code else ""
        return (
            f"FAIL hook={self.hook} plugin={self.plugin} check={self.check!r}: "
            f"{self.sentence}{shown}"
        )


@frozen
class HookCost:
    """What one hook of one plugin costs on a busy server, in host time."""

    plugin: str
    hook: str
    calls: int
    us_per_call: float
    us_per_step: float


class ConformanceError(AssertionError):
    """A policy does not conform."""


@define(eq=False)
class Report:
    """What came of all checks.

    Attributes:
        plugins: the stack as text. passed: names of checks.
        exempt: {check: the exemption that lets it off}.
        failures: the first of each check. hooks: what hooks cost, the dearest first.
        fcfs_us_per_step: what the whole scheduler takes with fcfs, in the same session.
    """

    plugins: list[str]
    passed: list[str] = field(factory=list)
    exempt: dict[str, str] = field(factory=dict)
    failures: list[Failure] = field(factory=list)
    hooks: list[HookCost] = field(factory=list)
    fcfs_us_per_step: float = 0.0

    @property
    def passes(self) -> bool:
        """True if nothing failed."""
        return not self.failures

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json` files."""
        return attrs.asdict(self)


def check_policy(
    plugins: Sequence[Spec],
    *,
    num_seeds: int = 4,
    may_starve: bool | None = None,
    may_idle: bool | None = None,
    may_take_turns: bool | None = None,
    may_use_time: bool | None = None,
    shrinks: bool = True,
) -> Report:
    """Run every check on a stack, and raise if one fails.

    Args:
        plugins: the stack, last asked first: names, files, classes or instances. Each run gets
            new instances. What is usual is put beneath.
        num_seeds: random scenarios for each check that uses them.
        may_starve, may_idle, may_take_turns, may_use_time: exemptions; None = as the plugins
            themselves declare.
        shrinks: look for a small scenario that fails.

    Raises:
        ConformanceError: with a line `FAIL hook=... plugin=...` and code for each failed check.
        PluginError: the stack cannot be built.
    """
    given = {
        "may_starve": may_starve,
        "may_idle": may_idle,
        "may_take_turns": may_take_turns,
        "may_use_time": may_use_time,
    }
    report = examine(plugins, num_seeds=num_seeds, exemptions=given, shrinks=shrinks)
    if not report.passes:
        raise ConformanceError("\n".join(map(str, report.failures)))
    return report


def examine(
    plugins: Sequence[Spec],
    *,
    num_seeds: int = 4,
    exemptions: Mapping[str, bool | None] | None = None,
    shrinks: bool = True,
    on_check: Callable[[str], object] | None = None,
) -> Report:
    """As `check_policy`, but report failures instead of raising.

    Args:
        exemptions: {name: whether it holds}; None = as the plugins declare.
        on_check: told the name of each check that begins.
    """
    subject, report = Subject(plugins), Report(list(map(spec_text, plugins)))
    for name, given in (exemptions or {}).items():
        if given is not None:
            subject.exemptions[name] = given
    for check in CHECKS:
        if on_check is not None:
            on_check(check.name)
        if check.exemption is not None and subject.exemptions[check.exemption]:
            report.exempt[check.name] = check.exemption
            continue
        _note(report, check.name, _first_failure(check, subject, num_seeds, report, shrinks))
    if on_check is not None:
        on_check(SPEED)
    try:
        _note(report, SPEED, _take_times(subject, report))
    except CheckError as error:
        if report.passes:  # else it is no news that the policy does not get through
            code = busy_server().code(subject.specs, CHECKS[0].name)
            _note(report, SPEED, Failure(SPEED, error.hook, error.plugin, error.sentence, code))
    return report


def check_scenario(plugins: Sequence[Spec], check: str, scenario: Scenario) -> None:
    """Run one check on one scenario: what the code of a failure calls.

    Raises:
        CheckError: it fails.
        HeadwayError: there is no such check.
    """
    for each in CHECKS:
        if each.name == check:
            return each.run(scenario, Subject(plugins))
    raise HeadwayError(f"check: got {check!r}, allowed: {', '.join(each.name for each in CHECKS)}")


def _note(report: Report, name: str, failure: Failure | None) -> None:
    if failure is None:
        report.passed.append(name)
    else:
        report.failures.append(failure)


def _first_failure(
    check: Check, subject: Subject, num_seeds: int, report: Report, shrinks: bool
) -> Failure | None:
    """The first scenario that fails; shrunk and shown only where the fault is a new one."""
    for scenario in check.scenarios(num_seeds):
        error = _error(check, subject, scenario)
        if error is None:
            continue
        known = {(failure.hook, failure.plugin) for failure in report.failures}
        if (error.hook, error.plugin) in known:
            return Failure(check.name, error.hook, error.plugin, error.sentence)
        if shrinks:
            scenario, error = _shrunk(check, subject, scenario, error)  # noqa: PLW2901
        code = scenario.code(subject.specs, check.name)
        return Failure(check.name, error.hook, error.plugin, error.sentence, code)
    return None


def _shrunk(
    check: Check, subject: Subject, scenario: Scenario, error: CheckError
) -> tuple[Scenario, CheckError]:
    def fails_alike(candidate: Scenario) -> bool:
        other = _error(check, subject, candidate)
        return other is not None and other.is_like(error)

    smaller = shrink(scenario, fails_alike)
    return smaller, _error(check, subject, smaller) or error


def _error(check: Check, subject: Subject, scenario: Scenario) -> CheckError | None:
    try:
        check.run(scenario, subject)
    except CheckError as error:
        return error
    return None


def _take_times(subject: Subject, report: Report) -> Failure | None:
    """Host times on a busy server, and a failure if the policy is far too slow."""
    fcfs = play(busy_server(), ["fcfs"], checks=False)
    report.fcfs_us_per_step = fcfs.scheduler_s / len(fcfs.steps) * 1e6
    played = subject.play(busy_server(), checks=False)
    report.hooks = [HookCost(*row) for row in hook_rows(played.watch, len(played.steps))]
    for cost in report.hooks:
        if cost.plugin in subject.names and cost.us_per_step > SLOWEST * report.fcfs_us_per_step:
            sentence = (
                f"{cost.us_per_step:.0f} µs a step ({cost.us_per_call:.0f} µs a call), where "
                f"all of a step with fcfs takes {report.fcfs_us_per_step:.0f} µs; allowed: "
                f"{SLOWEST:.0f} times that"
            )
            return Failure(SPEED, cost.hook, cost.plugin, sentence)
    return None
