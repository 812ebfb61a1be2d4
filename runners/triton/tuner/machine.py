"""The compilers and the GPU of this machine, as the search asks for them.

A candidate is compiled as `make aot` compiles it, in processes of its own, and judged alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from runners.triton.aot.report import judge
from runners.triton.aot.specs import of_row, variants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runners.triton.aot.compiling import Compilers
    from runners.triton.configs import AttentionConfig, Situation
    from runners.triton.tuner.bench import Bench


@define(eq=False)
class ThisMachine:
    """Compiles in other processes and times in this one."""

    compilers: Compilers
    bench: Bench

    def compiling(
        self, situation: Situation, configs: Sequence[AttentionConfig]
    ) -> list[AttentionConfig]:
        """Those that compile, fit and do not spill."""
        outcomes = self.compilers.compile([of_row(situation, config) for config in configs])
        return [
            config
            for config, outcome in zip(configs, outcomes, strict=True)
            if not judge([outcome]).complaints
        ]

    def time(self, situation: Situation, config: AttentionConfig) -> float:
        """Microseconds of a launch."""
        return self.bench.time(situation, config)

    def acceptable(self, situation: Situation, config: AttentionConfig) -> bool:
        """Whether the row would pass `make aot`, with every feature."""
        return not judge(self.compilers.compile(list(variants(situation, config)))).complaints
