"""ScriptedRunner: tokens from a function, time from a virtual clock. No model, no torch.

For trying policies: a run takes milliseconds and is the same every time. Tables, slots and drafts
are kept, and checked, by `framework.testing.TokenRunner`; this adds time, and a face like that of
the runners with a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

from attrs import define, field

from framework import ModelError, VirtualClock
from framework.clock import check_seconds
from framework.testing import TokenRunner, default_tokens

if TYPE_CHECKING:
    from framework import RunnerOutput, SchedulerConfig, SchedulerOutput
    from framework.testing.model import DraftFunction, TokenFunction

StepSeconds: TypeAlias = "float | Callable[[SchedulerOutput], float]"
STEP_S = 0.01


@define(eq=False)
class ScriptedRunner:
    """Runs plans at once and says how long they would have taken.

    Args:
        tokens: (request id, index among its outputs) -> token.
        drafts: (request id, index of the first, how many) -> drafts that it proposes; one is
            accepted where it equals the token. None = it proposes nothing (a plugin may).
        block_size: tokens of one KV block.
        step_s: seconds of one step that computes something: a number, or a function of the plan.
        clock: moved by each step.
        paged: check that each slot a request reads holds what it wrote or shares; False where
            nobody in the stack owns blocks, and for speed.
    """

    tokens: TokenFunction = default_tokens
    drafts: DraftFunction | None = field(default=None, kw_only=True)
    block_size: int = field(default=16, kw_only=True)
    step_s: StepSeconds = field(default=STEP_S, kw_only=True)
    clock: VirtualClock = field(factory=VirtualClock, kw_only=True)
    paged: bool = field(default=True, kw_only=True)
    vocab_size: int | None = field(default=None, init=False)
    max_model_len: int | None = field(default=None, init=False)
    eos_token_ids: tuple[int, ...] = field(default=(), init=False)
    _rows: TokenRunner = field(init=False)

    def __attrs_post_init__(self) -> None:
        if not callable(self.step_s):
            check_seconds(self.step_s, "step_s")
        self._rows = TokenRunner(self.block_size, self.tokens, self.drafts, paged=self.paged)

    @classmethod
    def from_model(
        cls,
        directory: Path,
        config: SchedulerConfig,
        *,
        dtype: str = "float32",
        device: str = "cpu",
        num_threads: int | None = None,
        seed: int = 0,
    ) -> ScriptedRunner:
        """A runner that draws tokens of the model's vocabulary by a hash; no weight is read.

        `dtype`, `device` and `num_threads` are what every runner is given; nothing depends on them.

        Raises:
            ModelError: config.json is missing or names no vocabulary.
        """
        size = _vocabulary(Path(directory))

        def tokens(request_id: str, position: int) -> int:
            return crc32(f"{seed}/{request_id}/{position}".encode()) % size

        runner = cls(tokens, block_size=config.block_size)
        runner.vocab_size = size
        return runner

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        """Run one step and move the clock.

        Raises:
            RunnerError: the plan cannot be run: unknown request, no slot for a token, a slot that
                holds something else.
        """
        result = self._rows.execute(output)
        seconds = 0.0
        if output.num_scheduled_tokens:
            given = self.step_s(output) if callable(self.step_s) else self.step_s
            seconds = check_seconds(given, "step_s")
        self.clock.advance(seconds)
        result.duration_s = seconds
        return result

    def close(self) -> None:
        """Forget everything."""
        self._rows.close()


def _vocabulary(directory: Path) -> int:
    path = directory / "config.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        size = fields.get("text_config", fields)["vocab_size"]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{path}: cannot read vocab_size: {error!r}") from error
    if type(size) is not int or size < 1:
        raise ModelError(f"{path}: vocab_size: got {size!r}, allowed: an int of at least 1")
    return size
