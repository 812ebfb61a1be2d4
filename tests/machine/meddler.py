"""Plugins that meddle at random, within what the hooks allow and without starving anybody.

A meddler has only the hooks of its powers, so that those it lacks keep their short way through
the step loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from framework import HOLD, PreemptMode, Request, RequestError, hookimpl
from framework.hookspecs import KIND_OF, Collect, Decide, Limit, Observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from framework import StepView, WaitingView
    from framework.protocols import Answer

PATIENCE: Final = 3
"""A request that lost its place more often is left alone."""


class SabotageError(Exception):
    """What a failing meddler raises."""


class Meddler:
    """Base of the meddlers."""

    name = "meddler"
    random: Random
    is_calm = False
    """True = it does nothing any more."""

    def acts(self, chance: float) -> bool:
        """Whether to do something now."""
        return not self.is_calm and self.random.random() < chance

    def some(self, requests: Iterable[Request]) -> list[Request]:
        """Some of these, in any order."""
        chosen = [request for request in requests if self.random.random() < 0.5]
        self.random.shuffle(chosen)
        return chosen


def pick_displaced(
    self: Meddler, candidates: Sequence[Request], step: StepView
) -> Request | Answer | None:
    patient = [request for request in candidates if request.num_preemptions < PATIENCE]
    return self.random.choice(patient) if patient and self.acts(0.4) else None


def preempt_mode(self: Meddler, displaced: bool, step: StepView) -> PreemptMode | None:
    modes = list(PreemptMode) if displaced else [PreemptMode.RECOMPUTE, PreemptMode.SWAP]
    return self.random.choice(modes) if self.acts(0.8) else None


def pick_preempt_victim(
    self: Meddler, request: Request, candidates: Sequence[Request]
) -> Request | Answer | None:
    patient = [one for one in candidates if one.num_preemptions < PATIENCE]
    return self.random.choice(patient) if patient and self.acts(0.5) else None


def order_running(
    self: Meddler, running: Sequence[Request], step: StepView
) -> Iterable[Request] | None:
    if not running or not self.acts(0.4):
        return None
    return self.some(running) or [self.random.choice(running)]


def select_waiting(self: Meddler, waiting: WaitingView, step: StepView) -> Request | Answer | None:
    if not self.acts(0.4):
        return None
    if step.planned and self.acts(0.2):
        return HOLD
    return self.random.choice(list(waiting))


def cap_num_new_tokens(self: Meddler, num_new_tokens: int) -> int | None:
    return self.random.randint(1, num_new_tokens) if self.acts(0.2) else None


def compute_num_new_tokens(self: Meddler, request: Request, num_new_tokens: int) -> int | None:
    if num_new_tokens < 1 or not self.acts(0.2):
        return None
    return self.random.randint(1, num_new_tokens)


def may_admit(self: Meddler, step: StepView) -> bool | None:
    return False if step.planned and self.acts(0.3) else None


def is_ready(self: Meddler, request: Request) -> bool | None:
    if self.acts(0.02):
        raise RequestError(f"{request.request_id} will never be ready")
    return False if self.acts(0.3) else None


def pick_rejected(self: Meddler, waiting: WaitingView) -> Iterable[Request] | None:
    return self.some(waiting) if waiting and self.acts(0.02) else None


def compute_num_drafts(self: Meddler) -> int | None:
    return self.random.randint(0, 9) if self.acts(0.5) else None


POWERS: Final[dict[str, tuple[Callable[..., Any], ...]]] = {
    "pause": (pick_displaced, preempt_mode, pick_preempt_victim),
    "sit_out": (order_running, cap_num_new_tokens, compute_num_new_tokens, compute_num_drafts),
    "gate": (select_waiting, may_admit, is_ready, pick_rejected),
}


class Saboteur(Meddler):
    """Raises at random, from every hook that others may implement beside it."""

    name = "saboteur"

    def __init__(self) -> None:
        self.failed: set[str] = set()
        """The hooks that raised; whoever has seen an error empties it."""

    def fail(self, hook: str) -> None:
        """Raise now and then."""
        if self.acts(0.004):
            self.failed.add(hook)
            raise SabotageError("at random")


SABOTAGED: Final = tuple(
    hook
    for hook, kind in KIND_OF.items()
    if kind in (Decide, Limit, Collect, Observe) and hook != "predict_output_len"
)


def _saboteur() -> Saboteur:
    """Each hook has code of its own, by which the core finds out who raised."""
    lines = ["class Sabotage(Saboteur):"]
    for hook in SABOTAGED:
        lines += ["    @hookimpl", f"    def {hook}(self):", f"        self.fail({hook!r})"]
    names: dict[str, Any] = {"Saboteur": Saboteur, "hookimpl": hookimpl}
    exec("\n".join(lines), names)
    made: Saboteur = names["Sabotage"]()
    return made


def meddlers(meddling: str, random: Random) -> list[Meddler]:
    """Those that this word of Settings stands for."""
    made: list[Meddler] = []
    functions = [
        function
        for power, group in POWERS.items()
        if meddling in (power, "all")
        for function in group
    ]
    if functions:
        hooks = {function.__name__: hookimpl(function) for function in functions}
        made.append(type("Drawn", (Meddler,), hooks)())
    if meddling in ("fail", "all"):
        made.append(_saboteur())
    for one in made:
        one.random = random
    return made
