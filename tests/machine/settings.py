"""What an episode runs under: limits and stack, drawn from a table of values, simplest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import frozen

from framework import SchedulerConfig
from plugins.chunked_prefill import ChunkedPrefill
from plugins.fcfs import Fcfs
from plugins.kv_blocks import KvBlocks
from plugins.kv_offload import KvOffload
from plugins.priority import Priority
from plugins.spec_decode import SpecDecode

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

POLICIES: Final[dict[str, Callable[[], object]]] = {
    "fcfs": Fcfs,
    "priority": Priority,
    "displacing": lambda: Priority(displace=True),
}

CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "seed": tuple(range(1000)),
    "policy": tuple(POLICIES),
    "meddling": ("none", "pause", "sit_out", "gate", "fail", "all"),
    "offload": ("none", "none", "sync", "async"),
    "capacity": (1000, 2, 6),
    "drafts": ("none", "none", "ngram", "runner"),
    "pad": (False, True),
    "is_async": (False, True),
    "num_spec_tokens": (1, 2, 4),
    "block_size": (4, 1, 2, 3, 8),
    "blocks": (8, 4, 6, 12, 20, 40),
    "budget": (16, 3, 6, 8, 32, 64),
    "lower_budget": (False, False, True),
    "max_num_seqs": (4, 1, 2, 3, 8),
    "fewer_active": (False, False, True),
    "max_model_len": (32, 8, 16, 24, 48, 64),
    "caching": (True, True, False),
    "reserve": (True, True, False),
    "watermark": (0.0, 0.0, 0.1, 0.3),
    "lookahead": (0, 0, 1, 3),
    "zero": (False, True),
    "split": (True, True, False),
    "cap": (None, None, 1, 3, 8),
    "fair_share": (False, True),
    "lone_exempt": (True, False),
    "vocabulary": (2, 40),
}


@frozen(kw_only=True)
class Settings:
    """One choice of each; `config` and `stack` are made of them."""

    seed: int
    policy: str
    meddling: str
    offload: str
    capacity: int
    drafts: str
    pad: bool
    is_async: bool
    num_spec_tokens: int
    block_size: int
    blocks: int
    budget: int
    lower_budget: bool
    max_num_seqs: int
    fewer_active: bool
    max_model_len: int
    caching: bool
    reserve: bool
    watermark: float
    lookahead: int
    zero: bool
    split: bool
    cap: int | None
    fair_share: bool
    lone_exempt: bool
    vocabulary: int

    @classmethod
    def drawn(cls, random: Random) -> Settings:
        """Any combination."""
        return cls(**{name: random.choice(values) for name, values in CHOICES.items()})

    @property
    def config(self) -> SchedulerConfig:
        """The limits. A step holds a whole prompt where prompts are not split."""
        budget = self.budget if self.split else max(self.budget, self.max_model_len)
        num_spec_tokens = 0 if self.drafts == "none" else self.num_spec_tokens
        return SchedulerConfig(
            block_size=self.block_size,
            num_blocks=self.blocks + 1,
            max_num_batched_tokens=budget + 3 * self.lower_budget,
            max_num_scheduled_tokens=budget if self.lower_budget else None,
            max_num_seqs=self.max_num_seqs,
            max_num_active_seqs=max(1, self.max_num_seqs - 1) if self.fewer_active else None,
            max_model_len=self.max_model_len,
            num_spec_tokens=num_spec_tokens,
            async_scheduling=self.is_async,
            seed=self.seed,
        )

    @property
    def stack(self) -> list[object]:
        """The plugins below the meddlers."""
        return self.stack_of(self.policy)

    def stack_of(self, policy: str) -> list[object]:
        """The plugins below the meddlers, with this policy."""
        stack: list[object] = [
            KvBlocks(
                enable_prefix_caching=self.caching,
                reserve_full_prompt=self.reserve,
                watermark=self.watermark,
                num_lookahead_tokens=self.lookahead,
                zero_new_blocks=self.zero,
            ),
            ChunkedPrefill(
                split=self.split,
                cap=self.cap if self.split else None,
                fair_share=self.fair_share,
                lone_exempt=self.lone_exempt,
            ),
            POLICIES[policy](),
        ]
        if self.drafts != "none":
            stack.append(SpecDecode(method=self.drafts, pad=self.pad))
        if self.offload != "none":
            stack.append(KvOffload(load=self.offload, capacity=self.capacity))
        return stack

    def __str__(self) -> str:
        """As a call that builds it."""
        return f"Settings(**{attrs.asdict(self)!r})"
