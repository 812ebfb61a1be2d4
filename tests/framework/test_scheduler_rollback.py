"""Whichever hook fails at whichever call: the error says so, and nothing else is different.

A saboteur stands last in a stack that uses every hook. It raises at one call of one hook, as a
plugin of its own or as a wrapper that fails before or after the owner's own work.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define, field

from framework import (
    EncoderInput,
    PolicyError,
    PreemptMode,
    Request,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    hookimpl,
)
from framework.hookspecs import KIND_OF, PARAMETERS, Collect, Decide, Limit, Observe
from framework.testing import Invariants, TokenRunner
from plugins.chunked_prefill import ChunkedPrefill
from plugins.kv_blocks import KvBlocks
from plugins.kv_offload import KvOffload
from plugins.priority import Priority
from plugins.spec_decode import SpecDecode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework import RunnerOutput, SchedulerOutput

BESIDE: Final = tuple(
    hook
    for hook, kind in KIND_OF.items()
    if kind in (Decide, Limit, Collect, Observe) and hook != "predict_output_len"
)
"""Hooks that several plugins may have."""

BEFORE: Final = (
    "order_waiting",
    "match_prefix",
    "allocate",
    "lookup_external",
    "external_allocated",
    "store_external",
    "allocate_encoder",
)
"""Hooks of an owner; if it fails, it has changed nothing."""

AFTER: Final = ("release", "withdraw", "publish", "release_encoder")
"""What an owner takes back; it fails when that is done."""


class SabotageError(Exception):
    """What the saboteur raises."""


@define(eq=False)
class Saboteur:
    """Counts its calls; raises at one of them."""

    name = "saboteur"
    fails_at: int | None
    num_calls: int = 0

    def count(self) -> None:
        self.num_calls += 1
        if self.num_calls - 1 == self.fails_at:
            raise SabotageError(f"call {self.fails_at}")


def saboteur(hook: str, fails_at: int | None) -> Saboteur:
    """One with a single hook, whose code is its own, so that the core can tell who raised."""
    before, after = ("self.count()", "pass") if hook in BEFORE else ("pass", "self.count()")
    wrapper = f"{before}\n        result = yield\n        {after}\n        return result"
    body = "self.count()" if hook in BESIDE else wrapper
    source = (
        f"class Made(Saboteur):\n"
        f"    @hookimpl(wrapper={hook not in BESIDE})\n"
        f"    def {hook}(self):\n"
        f"        {body}\n"
    )
    names: dict[str, Any] = {"Saboteur": Saboteur, "hookimpl": hookimpl}
    exec(source, names)
    made: Saboteur = names["Made"](fails_at)
    return made


@define(eq=False)
class Pauser:
    """The urgent displace others, which keep their blocks or are swapped out by turns."""

    num_modes: int = 0

    @hookimpl
    def preempt_mode(self, displaced: bool) -> PreemptMode:
        self.num_modes += 1
        return PreemptMode.KEEP if displaced and self.num_modes % 2 else PreemptMode.SWAP


@define(eq=False)
class Images:
    """An encoder cache without end."""

    held: set[str] = field(factory=set)

    @hookimpl
    def allocate_encoder(self, request: Request) -> list[int]:
        if request.request_id in self.held:
            return []
        self.held.add(request.request_id)
        return list(range(len(request.encoder_inputs)))

    @hookimpl
    def release_encoder(self, request: Request) -> list[str]:
        self.held.discard(request.request_id)
        return [item.content_id for item in request.encoder_inputs]


def requests() -> list[Request]:
    """Eight of two priorities, some with an image, of two families of prompts."""
    made = []
    for index in range(8):
        prompt = [10 * (index % 2) + place % 3 for place in range(5 + index)]
        images = [EncoderInput(content_id=f"i{index}", position=1, num_tokens=2)]
        request = Request(
            f"r{index}",
            prompt,
            SamplingParams(max_tokens=4 + index % 3),
            priority=1 if index < 5 else 0,
            arrival_time=float(index),
            encoder_inputs=images if index % 3 == 0 else (),
        )
        made.append(request)
    return made


def token(name: str, position: int) -> int:
    return (sum(name.encode()) + position) % 3


@define(eq=False)
class Run:
    """One run with a saboteur; errors are noted, and the run goes on."""

    hook: str
    fails_at: int | None
    load: str
    is_async: bool
    errors: list[PolicyError] = field(factory=list)
    in_flight: deque[tuple[SchedulerOutput, RunnerOutput]] = field(factory=deque)
    config: SchedulerConfig = field(init=False)
    saboteur: Saboteur = field(init=False)
    scheduler: Scheduler = field(init=False)
    invariants: Invariants = field(init=False)
    runner: TokenRunner = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.config = SchedulerConfig(
            block_size=2,
            num_blocks=22,
            max_num_batched_tokens=12,
            max_num_seqs=3,
            max_model_len=32,
            num_spec_tokens=2,
            async_scheduling=self.is_async,
        )
        self.saboteur = saboteur(self.hook, self.fails_at)
        stack: Sequence[object] = (
            *(KvBlocks(), ChunkedPrefill(cap=7), Priority(displace=True)),
            *(SpecDecode(min_ngram=1), KvOffload(load=self.load), Pauser(), Images()),
            self.saboteur,
        )
        self.scheduler = Scheduler(self.config, stack)
        self.invariants = Invariants(self.scheduler)
        self.runner = TokenRunner(self.config.block_size, token)

    def go(self) -> dict[str, list[int]]:
        """Requests come one a step; {id: output} at the end."""
        todo = requests()
        done = {request.request_id: request for request in todo}
        for _ in range(400):
            if todo and self.tried(self.scheduler.add_request, todo[0]):
                todo.pop(0)
            self.step()
            if not (todo or self.in_flight or self.scheduler.has_requests()):
                break
        self.invariants.at_idle()
        return {name: request.output_token_ids for name, request in done.items()}

    def step(self) -> None:
        scheduler = self.scheduler
        if scheduler.has_requests() and len(self.in_flight) <= self.config.async_scheduling:
            output = self.tried(scheduler.schedule)
            if output is not None:
                self.invariants.after_schedule(output)
                self.in_flight.append((output, self.runner.execute(output)))
                if len(self.in_flight) <= self.config.async_scheduling:
                    return
        if self.in_flight:
            result = self.tried(scheduler.update_from_output, *self.in_flight.popleft())
            self.invariants.after_update(result or self.errors[-1].result)

    def tried(self, call: Any, *arguments: Any) -> Any:
        """What the call returned; True for None, None if it failed."""
        try:
            answer = call(*arguments)
        except PolicyError as error:
            self.errors.append(error)
            self.invariants.check_state()
            return None
        return True if answer is None else answer


VARIANTS: Final = [("sync", False), ("async", False), ("sync", True)]


@pytest.mark.parametrize(("load", "is_async"), VARIANTS)
@pytest.mark.parametrize("hook", BESIDE + BEFORE + AFTER)
def test_one_failure_is_told_and_changes_no_output(hook: str, load: str, is_async: bool) -> None:
    sound = Run(hook, None, load, is_async)
    outputs = sound.go()
    assert not sound.errors
    for call in range(sound.saboteur.num_calls):
        run = Run(hook, call, load, is_async)
        assert run.go() == outputs, f"call {call}"
        (error,) = run.errors
        assert (error.plugin, error.hook) == ("saboteur", hook), f"call {call}: {error}"
        assert isinstance(error.__cause__, SabotageError), f"call {call}"
        if "request" in PARAMETERS[hook]:
            assert error.request_id in outputs and repr(error.request_id) in str(error)
        else:
            assert error.step is not None and f"in step {error.step}:" in str(error)


def test_the_runs_call_every_hook() -> None:
    calls: Counter[str] = Counter()
    for load, is_async in VARIANTS:
        for hook in BESIDE + BEFORE + AFTER:
            run = Run(hook, None, load, is_async)
            run.go()
            calls[hook] += run.saboteur.num_calls
    assert not [hook for hook in BESIDE + BEFORE + AFTER if not calls[hook]], calls
