"""Random schedules in the test suite: a state machine that shrinks, and a fixed run of episodes."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.machine.fuzz import run_episode
from tests.machine.settings import CHOICES, Settings
from tests.machine.wishes import WISHES, Wish
from tests.machine.world import MOST_LIVE, World

STEPS = 10_000


def one_of_each(table: dict[str, tuple[Any, ...]]) -> st.SearchStrategy[dict[str, Any]]:
    """A value for every name of a table, the first ones the simplest."""
    return st.fixed_dictionaries({name: st.sampled_from(row) for name, row in table.items()})


class SchedulerMachine(RuleBasedStateMachine):
    """Add, abort, plan and apply in any order; every move is checked, and the end."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(choices=one_of_each(CHOICES))
    def build(self, choices: dict[str, Any]) -> None:
        self.world = World(Settings(**choices))

    @precondition(lambda self: self.world and len(self.world.scheduler.requests) < MOST_LIVE)
    @rule(wish=one_of_each(WISHES))
    def add(self, wish: dict[str, Any]) -> None:
        assert self.world
        self.world.add(Wish(**wish))

    @rule(number=st.integers(0, 10))
    def abort(self, number: int) -> None:
        assert self.world
        self.world.abort(f"r{number}")

    @rule(count=st.integers(1, 8))
    def steps(self, count: int) -> None:
        assert self.world
        for _ in range(count):
            self.world.step()

    @precondition(
        lambda self: (
            self.world
            and self.world.scheduler.has_requests()
            and len(self.world.in_flight) < self.world.depth
        )
    )
    @rule()
    def plan(self) -> None:
        assert self.world
        self.world.schedule()

    @precondition(lambda self: self.world and self.world.in_flight)
    @rule()
    def late_update(self) -> None:
        assert self.world
        self.world.update()

    def teardown(self) -> None:
        if self.world is not None:
            self.world.drain()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_ten_thousand_random_steps_keep_every_promise() -> None:
    num_steps = episode = 0
    while num_steps < STEPS:
        num_steps += run_episode(0, episode)
        episode += 1
    assert num_steps >= STEPS
