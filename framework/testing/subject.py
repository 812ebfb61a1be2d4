"""The plugins under check, and who is to blame where a check fails.

Where nobody raised and no answer was wrong, the hook that is named is the likeliest of those that
the plugins under check implement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from attrs import define, field

from framework.clock import VirtualClock
from framework.errors import HeadwayError, PluginError, PolicyError
from framework.request import Request
from framework.sampling import SamplingParams
from framework.stack import complete_stack, implemented_hooks, load_plugin, plugin_name
from framework.study.run import is_oracle
from framework.study.workload import prompt_tokens
from framework.testing.invariants import InvariantError
from framework.testing.playing import Played, UnendingError, play, with_drafts
from framework.testing.proxies import fresh
from framework.testing.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.loading import Spec
    from framework.testing.scenarios import Scenario
    from framework.testing.simulation import Trace

EXEMPTIONS: Final = ("may_starve", "may_idle", "may_use_time", "may_take_turns")
ADMITTING: Final = (
    *("select_waiting", "may_admit", "pick_rejected", "order_running", "cap_num_new_tokens"),
    *("compute_num_new_tokens", "is_ready", "order_waiting", "pick_displaced"),
    *("pick_preempt_victim", "split_prefill"),
)
"""Hooks that may keep somebody waiting, the likeliest first."""
PLANNING: Final = (
    *("extend_output", "step_planned", "compute_num_new_tokens", "split_prefill", "allocate"),
    *("match_prefix", "release", "pick_displaced", "pick_preempt_victim", "order_running"),
)
"""Hooks that may spoil a plan, the likeliest first."""


@define(eq=False)
class CheckError(AssertionError):
    """A check failed.

    Attributes:
        sentence: what was wrong. hook, plugin: whose doing it is, as far as can be told.
    """

    sentence: str
    hook: str
    plugin: str

    def is_like(self, other: CheckError) -> bool:
        """Whether it is the same fault: same plugin, hook, and kind of sentence."""
        mine, others = (each.sentence.split()[:2] for each in (self, other))
        same = (self.hook, self.plugin) == (other.hook, other.plugin)
        return same and (mine[:1] == others[:1])

    def __str__(self) -> str:
        return f"hook={self.hook} plugin={self.plugin}: {self.sentence}"


@define(eq=False)
class Subject:
    """The plugins under check.

    Attributes:
        specs: the stack without what is put beneath.
        names: of the plugins. hooks: {plugin name: hooks that it implements}.
    """

    specs: Sequence[Spec]
    names: list[str] = field(init=False)
    hooks: dict[str, list[str]] = field(init=False)
    is_oracle: bool = field(init=False)
    exemptions: dict[str, bool] = field(init=False)

    def __attrs_post_init__(self) -> None:
        plugins = [load_plugin(fresh(spec)) for spec in self.specs]
        self.names = [plugin_name(plugin) for plugin in plugins]
        self.hooks = {plugin_name(plugin): implemented_hooks(plugin) for plugin in plugins}
        self.is_oracle = any(map(is_oracle, plugins))
        self.exemptions = {
            name: any(bool(getattr(plugin, name, False)) for plugin in plugins)
            for name in EXEMPTIONS
        }

    def blame(self, sentence: str, suspects: Sequence[str]) -> CheckError:
        """The error that names the likeliest hook of the plugins under check."""
        for hook in suspects:
            for name in reversed(self.names):
                if hook in self.hooks[name]:
                    return CheckError(sentence, hook, name)
        last = self.names[-1]
        return CheckError(sentence, next(reversed(self.hooks[last]), "unknown"), last)

    def play(self, scenario: Scenario, *, checks: bool = True) -> Played:
        """Play it, and turn what goes wrong into a CheckError."""
        try:
            played = play(scenario, self.specs, checks=checks)
        except PluginError:
            raise
        except Exception as error:
            raise self._translated(error, getattr(error, "played", None)) from error
        _refuse_misuse(played)
        return played

    def drive(self, scenario: Scenario, *, is_async: bool) -> Trace:
        """Run it step by step on a runner that checks the cache, one step in flight or two."""
        specs = complete_stack([fresh(each) for each in self.specs])
        stack = [load_plugin(spec) for spec in specs]
        config = attrs.evolve(with_drafts(scenario.config, stack), async_scheduling=is_async)
        arrive_at = {each.request_id: int(each.time * 16) for each in scenario.arrivals}
        try:
            return simulate(
                stack,
                requests_of(scenario),
                config,
                arrive_at=arrive_at,
                clock=VirtualClock(),
                latency=scenario.latency,
            )
        except PluginError:
            raise
        except (HeadwayError, InvariantError) as error:
            raise self._translated(error, None) from error

    def _translated(self, error: Exception, played: Played | None) -> Exception:
        if played is not None and played.watch.misuses:
            misuse = played.watch.misuses[0]
            return CheckError(misuse.sentence, misuse.hook, misuse.plugin)
        if isinstance(error, PolicyError):
            return CheckError(f"{error.got}; allowed: {error.allowed}", error.hook, error.plugin)
        suspects = PLANNING if isinstance(error, InvariantError) else ADMITTING
        if isinstance(error, InvariantError) and "empty one in a row" in str(error):
            suspects = ADMITTING
        if isinstance(error, HeadwayError | InvariantError | UnendingError):
            return self.blame(str(error), suspects)
        return error


def _refuse_misuse(played: Played) -> None:
    """A hook may have swallowed the error that told it."""
    for misuse in played.watch.misuses:
        raise CheckError(misuse.sentence, misuse.hook, misuse.plugin)


def requests_of(scenario: Scenario) -> list[Request]:
    """The requests, their lengths as limits: for runs in which nobody is to be kept from them."""
    return [
        Request(
            arrival.request_id,
            prompt_tokens(arrival, number),
            SamplingParams(max_tokens=arrival.output_len),
            arrival_time=arrival.time,
            priority=arrival.priority,
            tenant=arrival.tenant,
            slo=arrival.slo,
        )
        for number, arrival in enumerate(scenario.arrivals)
    ]
