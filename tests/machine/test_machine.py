"""The state machine: random limits, stacks and moves, with every check after every move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.machine.fuzz import run_episode
from tests.machine.settings import CHOICES, Settings
from tests.machine.wishes import WISHES, Wish
from tests.machine.world import MOST_LIVE, World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NUM_STEPS: Final = 10_000


def choices(table: Mapping[str, Sequence[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """One value of each row; the first ones are the simplest."""
    rows = {name: tuple(dict.fromkeys(values)) for name, values in table.items()}
    return st.fixed_dictionaries({name: st.sampled_from(row) for name, row in rows.items()})


class Machine(RuleBasedStateMachine):
    """Draws what a World goes through."""

    num_steps = 0
    world: World

    @initialize(drawn=choices(CHOICES))
    def build(self, drawn: dict[str, Any]) -> None:
        """One scheduler with its stack."""
        chosen = Settings(**drawn)
        note(str(chosen))
        self.world = World(chosen)

    @rule(drawn=choices(WISHES))
    def add(self, drawn: dict[str, Any]) -> None:
        """A request, perhaps with an id that was in use before or still is."""
        if len(self.world.scheduler.requests) < MOST_LIVE:
            self.world.add(Wish(**drawn))

    @rule(number=st.integers(0, 10))
    def abort(self, number: int) -> None:
        """A request that is unknown, waiting, running, in flight or done."""
        self.world.abort(f"r{number}")

    @precondition(lambda self: self.world.may_plan)
    @rule(times=st.integers(1, 60))
    def run(self, times: int) -> None:
        """Some steps, each with its result at once or later."""
        for _ in range(times):
            self.world.step()

    @precondition(lambda self: self.world.may_plan)
    @rule()
    def schedule(self) -> None:
        """Plan a step; its result comes later."""
        self.world.schedule()

    @precondition(lambda self: self.world.in_flight)
    @rule()
    def update(self) -> None:
        """The result of the oldest step."""
        self.world.update()

    @rule()
    def swap(self) -> None:
        """Another stack; the steps in flight are applied first."""
        self.world.swap()

    def teardown(self) -> None:
        """Run until nothing is left, and look at every output."""
        if hasattr(self, "world"):
            self.world.drain()
            Machine.num_steps += self.world.num_steps


def test_whatever_comes_the_books_add_up_and_every_output_is_right() -> None:
    Machine.num_steps = 0
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Machine,
        settings=settings(
            max_examples=100,
            stateful_step_count=60,
            deadline=None,
            derandomize=True,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert Machine.num_steps > 0


def test_ten_thousand_random_steps_keep_every_promise() -> None:
    num_steps = episode = 0
    while num_steps < NUM_STEPS:
        num_steps += run_episode(seed=2, episode=episode)
        episode += 1
    assert num_steps >= NUM_STEPS


def test_a_landed_load_keeps_no_running_request_from_its_blocks_for_ever() -> None:
    assert run_episode(seed=0, episode=2560) > 0


def test_an_abort_before_its_load_was_handed_out_leaves_no_blocks_waiting() -> None:
    assert run_episode(seed=11, episode=766) > 0
