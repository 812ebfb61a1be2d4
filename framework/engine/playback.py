"""Play prompts through one policy in real time, each at its arrival, and see what it came to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs
from attrs import define, field

from framework.engine.front import Front
from framework.metrics import Distribution, Summary, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from framework.engine.completion import Completion, LiveRequest
    from framework.engine.models import LoadedModel
    from framework.engine.prompts import Prompt
    from framework.loading import Spec


@define(eq=False)
class Playback:
    """One run of all prompts under one policy.

    Attributes:
        policy: what the user calls it.
        front: the model under this policy, with fresh books and an empty cache.
        prompts: what arrives, in any order; they arrive by `arrival_s`.
        lives: those that have arrived.
    """

    policy: str
    front: Front
    prompts: Sequence[Prompt]
    lives: list[LiveRequest] = field(factory=list, init=False)

    def run(self, on_end: Callable[[int], Any]) -> None:
        """Play to the end.

        Args:
            on_end: told how many requests have just ended.

        Raises:
            RequestError: a prompt is refused.
            PolicyError, StallError: the policy failed.
        """
        clock = self.front.clock
        arriving = sorted(self.prompts, key=lambda prompt: prompt.arrival_s)
        start = clock.now()
        num_arrived = 0
        while num_arrived < len(arriving) or self.front.has_live:
            elapsed = clock.now() - start
            while num_arrived < len(arriving) and arriving[num_arrived].arrival_s <= elapsed:
                prompt = arriving[num_arrived]
                self.lives.append(self.front.submit(prompt, start + prompt.arrival_s))
                num_arrived += 1
            if self.front.has_live:
                on_end(len(self.front.step()))
            else:
                time.sleep(max(0.0, arriving[num_arrived].arrival_s - elapsed))

    def outcome(self) -> Outcome:
        """What it has come to so far."""
        completions = [live.completion for live in self.lives if live.completion is not None]
        counters = self.front.core.scheduler.counters
        return Outcome(
            policy=self.policy,
            num_prompts=len(self.prompts),
            summary=summarise([live.timeline for live in self.lives]),
            completions=completions,
            num_steps=counters.num_steps,
            num_preemptions=counters.num_preemptions,
            num_displacements=counters.num_displacements,
            num_drafts=counters.num_drafts,
            num_drafts_accepted=counters.num_drafts_accepted,
        )


@define(eq=False, kw_only=True)
class Outcome:
    """What one policy did to one set of prompts.

    Attributes:
        policy: what the user calls it.
        num_prompts: how many were to be played.
        summary: latencies and totals.
        completions: of the requests that ended, in order of arrival.
        num_steps, num_preemptions, num_displacements: counts; displacements are preemptions too.
        num_drafts, num_drafts_accepted: tokens drafted, and found right.
    """

    policy: str
    num_prompts: int
    summary: Summary
    completions: Sequence[Completion]
    num_steps: int
    num_preemptions: int
    num_displacements: int
    num_drafts: int
    num_drafts_accepted: int

    @property
    def is_complete(self) -> bool:
        """Every prompt was played to its end."""
        return len(self.completions) == self.num_prompts

    def ttft_by_priority(self) -> dict[int, Distribution]:
        """{priority: time to first token}, most urgent first."""
        waits: dict[int, list[float | None]] = {}
        for completion in self.completions:
            waits.setdefault(completion.priority, []).append(completion.timings.ttft_s)
        return {priority: Distribution.of(waits[priority]) for priority in sorted(waits)}

    def outputs(self) -> dict[str, tuple[int, ...]]:
        """{request id: output tokens}."""
        return {completion.request_id: completion.token_ids for completion in self.completions}

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json` files."""
        return {
            "policy": self.policy,
            "complete": self.is_complete,
            "num_prompts": self.num_prompts,
            "num_steps": self.num_steps,
            "num_preemptions": self.num_preemptions,
            "num_displacements": self.num_displacements,
            "num_drafts": self.num_drafts,
            "num_drafts_accepted": self.num_drafts_accepted,
            "summary": self.summary.as_dict(),
            "ttft_s_by_priority": {
                str(priority): attrs.asdict(waits)
                for priority, waits in self.ttft_by_priority().items()
            },
            "requests": [completion.as_dict() for completion in self.completions],
        }


def same_outputs(outcomes: Sequence[Outcome]) -> bool | None:
    """Whether every complete run gave the same tokens; None if there are not two to compare."""
    complete = [outcome.outputs() for outcome in outcomes if outcome.is_complete]
    if len(complete) < 2:
        return None
    return all(outputs == complete[0] for outputs in complete[1:])


def check_prompts(model: LoadedModel, stack: Sequence[Spec], prompts: Sequence[Prompt]) -> None:
    """Try to add every prompt to a scheduler that is thrown away, so that none fails midway.

    Raises:
        PluginError: the stack cannot be built.
        RequestError: a prompt would be refused.
    """
    with Front(model, stack) as front:
        for prompt in prompts:
            front.submit(prompt)


def warm_up(model: LoadedModel, stack: Sequence[Spec], prompt: Prompt) -> None:
    """Run one short request, so that the first policy does not pay for first uses."""
    most = min(2, prompt.sampling_params.max_tokens or 2)
    params = attrs.evolve(prompt.sampling_params, max_tokens=most, min_tokens=0)
    with Front(model, stack) as front:
        front.run([front.submit(attrs.evolve(prompt, sampling_params=params))])
        front.drain()
