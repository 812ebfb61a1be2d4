"""SchedulerConfig: the limits that the core enforces, and what several sides share.

Options of one plugin are that plugin's constructor arguments, not fields here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from attrs import field, frozen

from framework.errors import ConfigError, bad_field, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


def _at_least(low: int) -> Any:
    def check(_: object, attribute: attrs.Attribute[int], value: object) -> None:
        if type(value) is not int or value < low:
            raise bad_field(attribute.name, value, f"an int of at least {low}")

    return check


def _a_bool(_: object, attribute: attrs.Attribute[bool], value: object) -> None:
    if type(value) is not bool:
        raise bad_field(attribute.name, value, "True or False")


def _optional_at_least(low: int) -> Any:
    check = _at_least(low)

    def check_or_none(instance: object, attribute: attrs.Attribute[int], value: object) -> None:
        if value is not None:
            check(instance, attribute, value)

    return check_or_none


@frozen(kw_only=True)
class SchedulerConfig:
    """Limits of one scheduler (vLLM V1's names).

    Attributes:
        max_num_batched_tokens: token budget of one step, over all requests.
        max_num_scheduled_tokens: a lower budget for the scheduler alone, or None.
        max_num_seqs: most requests in the running list (slots).
        max_num_active_seqs: a lower limit for admission alone, or None.
        max_model_len: most tokens (prompt + output) of one request.
        block_size: tokens of one KV block.
        num_blocks: KV blocks in the pool, including block 0, which is never handed out.
        num_spec_tokens: most draft tokens of one request in one step; 0 = no drafts.
        async_scheduling: plan one step ahead of the outputs (two steps in flight).
        seed: seed of every plugin's own random stream.
    """

    max_num_batched_tokens: int = field(default=2048, validator=_at_least(1))
    max_num_scheduled_tokens: int | None = field(default=None, validator=_optional_at_least(1))
    max_num_seqs: int = field(default=128, validator=_at_least(1))
    max_num_active_seqs: int | None = field(default=None, validator=_optional_at_least(1))
    max_model_len: int = field(default=8192, validator=_at_least(2))
    block_size: int = field(default=16, validator=_at_least(1))
    num_blocks: int = field(default=4096, validator=_at_least(2))
    num_spec_tokens: int = field(default=0, validator=_at_least(0))
    async_scheduling: bool = field(default=False, validator=_a_bool)
    seed: int = field(default=0, validator=_at_least(0))

    def __attrs_post_init__(self) -> None:
        lower = self.max_num_scheduled_tokens
        if lower is not None and lower > self.max_num_batched_tokens:
            raise bad_field(
                "max_num_scheduled_tokens",
                lower,
                f"at most max_num_batched_tokens ({self.max_num_batched_tokens})",
            )
        active = self.max_num_active_seqs
        if active is not None and active > self.max_num_seqs:
            raise bad_field(
                "max_num_active_seqs", active, f"at most max_num_seqs ({self.max_num_seqs})"
            )
        if self.num_spec_tokens >= self.max_model_len:
            raise bad_field(
                "num_spec_tokens",
                self.num_spec_tokens,
                f"less than max_model_len ({self.max_model_len})",
            )

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> SchedulerConfig:
        """Build from a mapping; an unknown field is refused with close matches.

        Raises:
            ConfigError: a field is unknown or its value is not allowed.
        """
        known = [attribute.name for attribute in attrs.fields(cls)]
        for name in fields:
            if name not in known:
                raise ConfigError(
                    f"{name}: no such field of SchedulerConfig.{did_you_mean(name, known)}"
                )
        return cls(**fields)

    @property
    def token_budget(self) -> int:
        """Tokens that one step may hand out."""
        return self.max_num_scheduled_tokens or self.max_num_batched_tokens

    @property
    def num_slots(self) -> int:
        """Running requests beyond which nobody is admitted."""
        return self.max_num_active_seqs or self.max_num_seqs
