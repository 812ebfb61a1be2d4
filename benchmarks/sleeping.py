"""A runner without a model whose steps take real time: as long as a latency model says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from attrs import define, field

from framework import LinearLatency
from framework.study.calibrating import batch_of
from runners.scripted import ScriptedRunner

if TYPE_CHECKING:
    from framework import RunnerOutput, SchedulerOutput

LATENCY = LinearLatency(base_ms=2.0, token_ms=0.05, context_ms=2e-4, request_ms=0.2)


@define(eq=False)
class Sleeper:
    """Sleeps, then samples.

    Args:
        latency: how long.
    """

    latency: LinearLatency = LATENCY
    inner: ScriptedRunner = field(factory=lambda: ScriptedRunner(paged=False))

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        """Run one step."""
        time.sleep(self.latency.predict(batch_of(output)))
        return self.inner.execute(output)

    def close(self) -> None:
        """Nothing to give back."""
