"""What plugins are told: `Setup` once, `StepReport` after each step."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from framework.config import SchedulerConfig
    from framework.protocols import Clock, KvView, LatencyModel, WaitingView
    from framework.request import Request


@define(eq=False)
class Setup:
    """What `scheduler_built` gives to every plugin.

    Attributes:
        config: the limits.
        clock: the scheduler's clock.
        waiting: the live waiting queue.
        kv: face of the owner of blocks, or None.
        latency: the injected latency model, or None.
        probes: names of per-request values that the runner shall report (add yours).
        predict: predicted output length in tokens, or None; as `StepView.predict`, for those who
            decide outside a step (`order_waiting`).
    """

    config: SchedulerConfig
    clock: Clock
    waiting: WaitingView
    kv: KvView | None
    latency: LatencyModel | None
    probes: set[str]
    predict: Callable[[Request], float | None]
    _name_of: Callable[[object], str]

    def random(self, plugin: object) -> Random:
        """A random stream of the plugin's own: same config seed and name, same numbers."""
        return Random(f"{self.config.seed}/{self._name_of(plugin)}")


@frozen
class TokenCounts:
    """Tokens of one request in one step, by kind.

    Attributes:
        prefill: prompt tokens computed for the first time.
        cached: tokens that an admission in this step got for nothing.
        recomputed: tokens computed again after a preemption.
        decode: tokens sampled and kept.
        draft_accepted, draft_rejected: verified drafts.
    """

    prefill: int = 0
    cached: int = 0
    recomputed: int = 0
    decode: int = 0
    draft_accepted: int = 0
    draft_rejected: int = 0


@define(eq=False)
class StepReport:
    """What one step did.

    Attributes:
        step: its number.
        duration_s: seconds it took, as the runner says, else by the scheduler's clock.
        tokens: {request: TokenCounts}, in batch order.
        probes: {name: values in batch order} as asked for in `Setup.probes`.
    """

    step: int
    duration_s: float
    tokens: Mapping[Request, TokenCounts]
    probes: Mapping[str, Any] = field(factory=dict)
