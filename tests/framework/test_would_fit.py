"""What a step says of blocks that others would give back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from framework import Request, SamplingParams, SchedulerConfig, StepView, hookimpl
from framework.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence


@define(eq=False)
class Asking:
    """Notes whether a refused waiter would fit as it is, and without those it could displace."""

    found: list[tuple[bool, bool]] = field(factory=list)

    @hookimpl
    def pick_displaced(
        self, request: Request, candidates: Sequence[Request], step: StepView
    ) -> None:
        self.found.append((step.would_fit(request, ()), step.would_fit(request, candidates)))


def ask(stack: list[str], **limits: int) -> list[tuple[bool, bool]]:
    """A request of two blocks runs when one of four comes."""
    asking = Asking()
    requests = [
        Request("runs", list(range(6)), SamplingParams(max_tokens=2)),
        Request("comes", list(range(100, 113)), SamplingParams(max_tokens=2)),
    ]
    config = SchedulerConfig(block_size=4, max_model_len=32, **limits)
    simulate([*stack, "fcfs", asking], requests, config, arrive_at={"comes": 1})
    return asking.found


def test_blocks_of_others_count_where_they_are_named() -> None:
    assert ask(["kv_blocks", "chunked_prefill"], num_blocks=6) == [(False, True)]


def test_without_an_owner_of_blocks_everything_fits() -> None:
    assert ask([], max_num_seqs=1) == [(True, True)]
