"""Prompts first: the step of vLLM V0, after Orca's iteration-level batching.

As long as the prompt at the head of the queue fits, a step holds prompts and nothing else, each
whole, as many as budget, slots and blocks allow. Only when none fits does every running request
decode one token, and nobody is admitted. So new requests start early, and each prompt is a stall
for all who decode: the baseline of Sarathi-Serve. A prompt longer than the whole budget (vLLM V0
refuses it) is computed in steps for prompts alone. The order is that of the plugin beneath.
Source: Yu et al., "Orca", OSDI 2022; Kwon et al., "PagedAttention", SOSP 2023 (vLLM V0).
Hooks: order_running, select_waiting, split_prefill, step_planned, request_arrived,
request_finished, scheduler_built.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from framework import HOLD, Answer, Request, Setup, StepView, WaitingView, hookimpl


@define(eq=False)
class PrefillFirst:
    """A step of prompts, or else a step of decodes."""

    _waiting: WaitingView = field(init=False)
    _in_vain: bool = field(default=False, init=False)
    """The last step was kept free for prompts and a gate let none in; nothing changed since."""

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Keep the queue."""
        self._waiting = setup.waiting

    @hookimpl
    def order_running(self, step: StepView) -> Sequence[Request] | None:
        """Nobody while the next prompt fits; prompts that are not through go on before all."""
        prefills = step.running_prefills()
        if prefills:
            return prefills
        if self._in_vain or not len(self._waiting) or not step.fits(self._waiting[0]):
            return None
        return ()

    @hookimpl
    def select_waiting(self, step: StepView) -> Answer | None:
        """Nobody joins a step of decodes."""
        decodes = step.num_running_planned and not step.has_running_prefill()
        return HOLD if decodes else None

    @hookimpl
    def split_prefill(self, num_new_tokens: int, step: StepView) -> int:
        """Whole or not at all, unless no step could hold it whole."""
        return step.budget_left if num_new_tokens > step.config.token_budget else 0

    @hookimpl
    def step_planned(self, step: StepView) -> None:
        """A step that was kept free and stayed empty is not tried again at once."""
        self._in_vain = self._in_vain or not step.planned

    @hookimpl
    def request_arrived(self) -> None:
        """The next one may fit."""
        self._in_vain = False

    @hookimpl
    def request_finished(self) -> None:
        """The next one may fit now."""
        self._in_vain = False
