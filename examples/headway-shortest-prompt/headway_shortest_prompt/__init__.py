"""Shortest prompt first, with age: a short prompt overtakes, but not for ever.

The waiting requests are ordered by arrival plus `seconds_per_token` for each prompt token, so a
prompt may be overtaken only by those that come within the time that it is longer by. A request that
lost its place goes before all others, so that what it gave is not kept waiting. Nobody predicts
output lengths, so none are asked for.
Hooks: order_waiting.
"""

from __future__ import annotations

from attrs import define, field
from attrs.validators import ge, instance_of

from framework import Request, Status, hookimpl


@define(eq=False)
class ShortestPrompt:
    """Short prompts first, and everybody in the end.

    Args:
        seconds_per_token: how long a later request may go ahead for each token that it is shorter
            by; 0 is first come, first served.
    """

    may_use_time = True

    seconds_per_token: float = field(default=0.002, validator=[instance_of((int, float)), ge(0)])

    @hookimpl
    def order_waiting(self, request: Request) -> tuple[bool, float]:
        """When it would be due if tokens were seconds."""
        is_new = request.status is not Status.PREEMPTED
        return is_new, request.arrival_time + self.seconds_per_token * request.num_prompt_tokens
