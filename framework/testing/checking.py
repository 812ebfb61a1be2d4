"""The checks of conformance: what any policy must do, each on scenarios of its own.

A check plays a scenario and raises CheckError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Final

from attrs import frozen

from framework.testing import scenarios
from framework.testing.playing import Played, play
from framework.testing.scenarios import Scenario
from framework.testing.simulation import run_alone
from framework.testing.subject import ADMITTING, PLANNING, Subject, requests_of

if TYPE_CHECKING:
    pass

SERVED: Final = ("stop", "length")
PATIENCE_S: Final = 12.0
"""Seconds without a token, of the twenty-four that a flood lasts, after which a request starves."""
EARLY_S: Final = 5.0
"""Who comes later may well wait: there are more than can be served."""
HELD_BACK_STEPS: Final = 4
CLOSE: Final = 1e-9
FACTORS: Final = (2.0, 0.0625)
"""Powers of two, since they round nothing; two of them, since quanta may double."""


# ---------------------------------------------------------------------------------------------
# the checks
# ---------------------------------------------------------------------------------------------


def every_request_ends(scenario: Scenario, subject: Subject) -> None:
    """Nobody is lost, nobody gets more or fewer tokens than it has, the books add up."""
    played = subject.play(scenario)
    ended = played.ended
    for arrival in scenario.arrivals:
        name = arrival.request_id
        if ended.get(name, "unfinished") == "unfinished":
            raise subject.blame(f"request {name!r} never ended", ADMITTING)
        given = played.made[name].num_output_tokens
        if ended[name] in SERVED and given != arrival.output_len:
            raise subject.blame(
                f"request {name!r} gave {given} of {arrival.output_len} tokens", PLANNING
            )


def outputs_stay_the_same(scenario: Scenario, subject: Subject) -> None:
    """Tokens are those of requests that run one at a time, with one step in flight or two."""
    alone = run_alone(requests_of(scenario), scenario.config)
    for is_async in (False, True):
        trace = subject.drive(scenario, is_async=is_async)
        for name, tokens in trace.tokens.items():
            if trace.requests[name].status.value in ("stopped", SERVED[1]) and (
                tokens != alone[name]
            ):
                raise subject.blame(f"request {name!r} gave other tokens than alone", PLANNING)


def runs_repeat(scenario: Scenario, subject: Subject) -> None:
    """Same scenario, same seed: the same steps and events."""
    _same(subject, subject.play(scenario), subject.play(scenario), "the same run done twice")


def lengths_stay_hidden(scenario: Scenario, subject: Subject) -> None:
    """Whoever sees no true lengths decides the same, however long the outputs get."""
    if subject.is_oracle:
        return
    short = subject.play(scenario, checks=False)
    long = subject.play(scenarios.longer(scenario), checks=False)
    for number, (one, other) in enumerate(zip(short.steps, long.steps, strict=False)):
        if one.tokens != other.tokens:
            raise subject.blame(
                f"step {number} depends on output lengths that nobody can know yet: with longer "
                f"ones it is {dict(other.tokens)} instead of {dict(one.tokens)}",
                ADMITTING,
            )
        if one.ended or other.ended:
            return


def one_request_never_waits(scenario: Scenario, subject: Subject) -> None:
    """Its latency is the sum of the steps that it needs."""
    played = subject.play(scenario)
    last = max(number for number, step in enumerate(played.steps) if step.ended)
    total = sum(step.seconds for step in played.steps[: last + 1])
    for name, seconds in played.e2e.items():
        if abs(seconds - total) > CLOSE:
            raise subject.blame(
                f"request {name!r} alone took {seconds:.4f} s, its steps {total:.4f} s", ADMITTING
            )


def equals_take_as_long(scenario: Scenario, subject: Subject) -> None:
    """Of equal requests it makes no difference who goes first: the mean is that of fcfs."""
    own = fmean(subject.play(scenario).e2e.values())
    fcfs = fmean(play(scenario, ["fcfs"]).e2e.values())
    if own > fcfs * 1.01:
        raise subject.blame(
            f"identical requests take {own:.4f} s on average, with fcfs {fcfs:.4f} s", ADMITTING
        )


def nobody_starves(scenario: Scenario, subject: Subject) -> None:
    """Under a flood everybody gets a token now and then."""
    played = subject.play(scenario, checks=False)
    columns = played.meter.columns
    for number, name in enumerate(played.ended):
        longest = max(columns["ttft"][number], columns["longest_gap"][number])
        if columns["arrival"][number] <= EARLY_S and not longest <= PATIENCE_S:
            raise subject.blame(
                f"request {name!r} got no token for {longest:.0f} s, while requests that came "
                "later were served",
                ADMITTING,
            )


def nobody_is_held_back(scenario: Scenario, subject: Subject) -> None:
    """Where slots, tokens and memory are free, somebody who waits is admitted soon."""
    played, streak = subject.play(scenario), 0
    for number, step in enumerate(played.steps):
        streak = streak + 1 if step.num_held_back else 0
        if streak >= HELD_BACK_STEPS:
            raise subject.blame(
                f"step {number} is the {streak}th in a row in which a slot, half the tokens and "
                f"memory enough are free, and {step.num_held_back} wait",
                ADMITTING,
            )


def time_has_no_unit(scenario: Scenario, subject: Subject) -> None:
    """If everything takes longer or less by one factor, the same is done in the same order."""
    once = subject.play(scenario, checks=False)
    for factor in FACTORS:
        scaled = subject.play(scenarios.scaled(scenario, factor), checks=False)
        for number, (one, other) in enumerate(zip(once.steps, scaled.steps, strict=False)):
            if (one.tokens, one.lost) != (other.tokens, other.lost):
                raise subject.blame(
                    f"step {number} is another one when all times are multiplied by {factor}: "
                    f"{dict(other.tokens)} instead of {dict(one.tokens)}",
                    ADMITTING,
                )


@frozen
class Check:
    """One of them.

    Attributes:
        name: what reports call it. exemption: attribute of a plugin that lets it off, or None.
        run: raises CheckError. scenarios: what it is run on, given a number of seeds.
    """

    name: str
    run: Callable[[Scenario, Subject], None]
    scenarios: Callable[[int], Sequence[Scenario]]
    exemption: str | None = None

    @property
    def says(self) -> str:
        """What it says, in a line."""
        return (self.run.__doc__ or "").strip().partition("\n")[0]


def _random(num_seeds: int) -> list[Scenario]:
    return [scenarios.random_scenario(seed) for seed in range(num_seeds)]


def _fewer(num_seeds: int) -> list[Scenario]:
    return _random(max(1, num_seeds // 2))


def _hiding(num_seeds: int) -> list[Scenario]:
    """Long outputs of unlike lengths, few slots: much is decided before anybody ends."""
    lengths = [(5 + 11 * number % 31, 30 + 17 * number % 23) for number in range(12)]
    kinds = ({"max_num_seqs": 4}, {"max_num_seqs": 8, "num_blocks": 14})
    return [scenarios.of_lengths(lengths, gap=0.0078125, **kind) for kind in kinds][:num_seeds]


CHECKS: Final = (
    Check("ends", every_request_ends, lambda count: [*_random(count), scenarios.tight()]),
    Check("outputs", outputs_stay_the_same, _fewer),
    Check("repeats", runs_repeat, _fewer),
    Check("hidden lengths", lengths_stay_hidden, _hiding),
    Check(
        "alone", one_request_never_waits, lambda _: [scenarios.of_lengths([(100, 20)])], "may_idle"
    ),
    Check("identical", equals_take_as_long, lambda _: [scenarios.identical()], "may_take_turns"),
    Check(
        "starvation",
        nobody_starves,
        lambda _: [scenarios.flood(handicap) for handicap in ("long", "last", "cold")],
        "may_starve",
    ),
    Check("idling", nobody_is_held_back, _fewer, "may_idle"),
    Check("time scale", time_has_no_unit, _fewer, "may_use_time"),
)


# ---------------------------------------------------------------------------------------------
# helpers
# ---------------------------------------------------------------------------------------------


def _same(subject: Subject, one: Played, other: Played, what: str) -> None:
    for first, second in zip(one.log, other.log, strict=False):
        if first != second:
            raise subject.blame(f"{what} differs: {first} and {second}", ADMITTING)
    if len(one.log) != len(other.log):
        raise subject.blame(f"{what} differs in length", ADMITTING)
