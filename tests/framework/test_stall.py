"""A scheduler that can never go on says so, also with plans in flight."""

from __future__ import annotations

from collections import deque

import pytest

from framework import HOLD, Scheduler, SchedulerConfig, StallError, hookimpl
from framework.testing import TokenRunner, make_requests


class Nobody:
    """Admits nobody."""

    @hookimpl
    def select_waiting(self) -> object:
        return HOLD


@pytest.mark.parametrize("depth", [1, 2], ids=["sync", "async"])
def test_empty_plans_in_flight_are_nothing_to_wait_for(depth: int) -> None:
    config = SchedulerConfig(async_scheduling=depth > 1)
    scheduler = Scheduler(config, ["kv_blocks", "fcfs", Nobody()])
    runner = TokenRunner(config.block_size)
    scheduler.add_request(make_requests(1)[0])
    in_flight = deque([scheduler.schedule()])
    with pytest.raises(StallError, match="r0"):
        for _ in range(10):
            if len(in_flight) == depth:
                output = in_flight.popleft()
                scheduler.update_from_output(output, runner.execute(output))
            in_flight.append(scheduler.schedule())
