"""Replay: run a recording again and compare every line with what was recorded.

In virtual time all of it is simulated once more. On a real runner the simulation keeps the clock
and says how many tokens each request gets and when it ends, so decisions see the recorded times
and lengths; the real runner executes each plan, and its tokens are the ones the scheduler gets.
A decision that hangs on anything else, or a plan that the runner cannot execute, is found.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, evolve, field, frozen

from framework.errors import ConfigError, HeadwayError, RunnerError
from framework.study.run import simulate_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from framework.clock import VirtualClock
    from framework.config import SchedulerConfig
    from framework.loading import Spec
    from framework.output import NewRequestData, RunnerOutput, SchedulerOutput
    from framework.study.drive import TimedRunner
    from framework.study.recorded import Recorded

LAST = '{"end":'
"""How the last line begins; after it there is nothing to stop."""
FIRST_MAPPED = 3
"""Tokens of the model below it are taken for what they mean to the simulation."""


@frozen
class Parting:
    """Where a replay left its recording.

    Attributes:
        step: its number, or the number of steps for the last line.
        field: of the line.
        recorded, replayed: its two values.
    """

    step: int
    field: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return (
            f"step {self.step}, {self.field}: recorded {self.recorded!r}, "
            f"replayed {self.replayed!r}"
        )


class PartedError(HeadwayError):
    """A line differs: what follows tells nothing more."""


@define(eq=False)
class Comparison:
    """Takes the lines of a replay, and compares each with its own of the recording."""

    lines: Iterator[str]
    num_lines: int = 0
    parting: Parting | None = None

    def __call__(self, line: str) -> None:
        """Compare the next line.

        Raises:
            PartedError: it differs.
        """
        if self.parting is not None:
            return
        recorded = next(self.lines, None)
        if line != recorded and self.num_lines:  # a header may name another version
            self.parting = _parting(self.num_lines - 1, recorded, line)
            if not line.startswith(LAST):
                raise PartedError(str(self.parting))
            return
        self.num_lines += 1

    @property
    def is_through(self) -> bool:
        """Every line was the same, and none is left."""
        return self.parting is None and next(self.lines, None) is None


def _parting(step: int, recorded: str | None, replayed: str) -> Parting:
    if recorded is None:
        return Parting(step, "steps", "the end", "more")
    ours, theirs = json.loads(replayed), json.loads(recorded)
    for name in [*theirs, *(name for name in ours if name not in theirs)]:
        before, now = theirs.get(name), ours.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            before, now = list(before.items()), list(now.items())
        if before != now:
            return Parting(step, name, before, now)
    return Parting(step, "line", recorded, replayed)


class ModelRunner(Protocol):
    """What is asked of a real runner."""

    @property
    def vocab_size(self) -> int | None:
        """Tokens the model knows; None = any."""

    @property
    def max_model_len(self) -> int | None:
        """Positions the model was made for; None = any."""

    def execute(self, output: SchedulerOutput) -> RunnerOutput | Any:
        """Run one step."""


@define(eq=False)
class ForcedRunner:
    """Runs plans on a model while a simulated runner keeps the clock and the lengths.

    Args:
        simulated: says how long a step takes and when each request ends.
        real: computes; it gets prompts whose tokens are names mapped into its vocabulary.
    """

    simulated: TimedRunner
    real: ModelRunner
    num_tokens: int = field(default=0, init=False)
    clock: VirtualClock = field(init=False)
    eos_token_ids: tuple[int, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.clock = self.simulated.clock
        self.eos_token_ids = self.simulated.eos_token_ids

    def expect(self, request_id: str, num_output_tokens: int) -> None:
        """Tell the simulation how many tokens a request will give."""
        self.simulated.expect(request_id, num_output_tokens)

    def execute(self, output: SchedulerOutput) -> RunnerOutput:
        """Run one step on both.

        Raises:
            RunnerError: the model did not sample what the simulation says.
        """
        result = self.simulated.execute(output)
        found = self.real.execute(self._mapped(output))
        pairs = zip(output.num_scheduled_tokens, found.sampled_token_ids, strict=True)
        told = []
        for (name, real), simulated in zip(pairs, result.sampled_token_ids, strict=True):
            if len(real) != len(simulated):
                raise RunnerError(
                    f"step {output.step}: request {name!r} sampled {len(real)} tokens on the "
                    f"runner, {len(simulated)} in the simulation"
                )
            told.append([self._token(*both) for both in zip(real, simulated, strict=True)])
            self.num_tokens += len(real)
        result.sampled_token_ids = told
        return result

    def _token(self, real: int, simulated: int) -> int:
        """The model's, except that a request ends just when it ended before."""
        ends = simulated in self.eos_token_ids
        return simulated if ends or real in self.eos_token_ids else int(real)

    def _mapped(self, output: SchedulerOutput) -> SchedulerOutput:
        """The same plan, tokens within the vocabulary."""
        if not (output.scheduled_new_reqs or output.scheduled_cached_reqs.all_token_ids):
            return output
        cached = output.scheduled_cached_reqs
        again = {name: list(self._within(tokens)) for name, tokens in cached.all_token_ids.items()}
        return evolve(
            output,
            scheduled_new_reqs=[self._mapped_new(new) for new in output.scheduled_new_reqs],
            scheduled_cached_reqs=evolve(cached, all_token_ids=again),
        )

    def _mapped_new(self, new: NewRequestData) -> NewRequestData:
        return evolve(new, prompt_token_ids=self._within(new.prompt_token_ids))

    def _within(self, tokens: Sequence[int]) -> Sequence[int]:
        known = self.real.vocab_size
        if known is None or max(tokens, default=0) < known:
            return tokens
        span = known - FIRST_MAPPED
        return [token if token < known else FIRST_MAPPED + token % span for token in tokens]


@frozen
class Replayed:
    """What a replay came to.

    Attributes:
        num_steps: that were the same.
        parting: the first difference, or None.
        num_real_tokens: that a real runner sampled, or None.
    """

    num_steps: int
    parting: Parting | None
    num_real_tokens: int | None = None


def replay(
    recorded: Recorded,
    stack: Sequence[Spec] | None = None,
    *,
    runner: Callable[[SchedulerConfig], Any] | None = None,
    on_end: Callable[[int], object] | None = None,
) -> Replayed:
    """Run a recording again.

    Args:
        recorded: what to repeat.
        stack: its plugins, where they were objects; None = those that the file names.
        runner: makes a `ModelRunner` for its limits, on which the plans are executed; None =
            virtual time alone.
        on_end: told how many requests have just ended.

    Raises:
        ConfigError: a real runner cannot repeat it, or the file does not name its stack.
        RunnerError: the real runner did something else than the simulation.
    """
    comparison = Comparison(recorded.lines())
    forced: list[ForcedRunner] = []

    def around(simulated: TimedRunner) -> TimedRunner:
        assert runner is not None
        forced.append(ForcedRunner(simulated, _checked(recorded, runner)))
        return forced[0]

    try:
        simulate_policy(
            recorded.workload,
            recorded.stack if stack is None else stack,
            config=recorded.config,
            latency=recorded.latency,
            predicts=recorded.predicts,
            **recorded.options,
            on_end=on_end,
            record=comparison,
            around=None if runner is None else around,
        )
    except RunnerError:
        raise
    except HeadwayError:  # a run that failed is repeated by failing in the same way
        if comparison.parting is None and not comparison.is_through:
            raise
    return Replayed(
        max(0, comparison.num_lines - 1 - (comparison.parting is None)),
        comparison.parting,
        forced[0].num_tokens if forced else None,
    )


def _checked(recorded: Recorded, make: Callable[[SchedulerConfig], Any]) -> ModelRunner:
    """A runner on which the recording can be repeated."""
    config = recorded.config
    if config.num_spec_tokens:
        raise ConfigError(
            f"{recorded.path}: num_spec_tokens: got {config.num_spec_tokens}, allowed: 0 on a real "
            "runner, which accepts other drafts than the simulation"
        )
    runner: ModelRunner = make(config)
    lengths = (each.prompt_len + each.output_len for each in recorded.workload.arrivals)
    longest = max(lengths, default=0)
    if runner.max_model_len is not None and longest > runner.max_model_len:
        raise ConfigError(
            f"{recorded.path}: its longest request has {longest} tokens, allowed: at most the "
            f"model's own {runner.max_model_len}"
        )
    return runner
