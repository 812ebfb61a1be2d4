"""Study: what is compared, under which conditions, and the single runs that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from attrs import field, frozen

from framework.engine.settings import DEFAULT_NUM_DRAFTS, proposes_drafts
from framework.errors import bad_field
from framework.latency import LinearLatency, load_latency
from framework.stack import build_manager, complete_stack, parse_stack
from framework.study.job import Job
from framework.study.run import DEFAULT_LATENCY, default_config
from framework.study.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework.config import SchedulerConfig


def _at_least_one(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not value:
        raise bad_field(attribute.name, value, "at least one")


def _loads(_: object, attribute: attrs.Attribute[Any], value: Sequence[float]) -> None:
    if any(not 0 < load < 100 for load in value) or len(set(value)) != len(value):
        allowed = "shares of the capacity above 0, such as 0.85, each once"
        raise bad_field(attribute.name, list(value), allowed)


def _above_zero_or_none(_: object, attribute: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise bad_field(attribute.name, value, "a number above 0")


@frozen(kw_only=True)
class Study:
    """What is compared, and under which conditions.

    Attributes:
        policies: stacks as text; differences are to the first.
        source: what arrives.
        seeds: each a replication; with several of them the gaps of a trace are drawn again.
        loads: shares of the capacity at which the workload comes; empty = as it comes.
        capacity: requests a second that are a load of 1; None = measured with the first policy.
        limits: fields of SchedulerConfig; what is left out is `default_config`'s.
        latency: how long steps take.
        horizon: seconds after which each run is cut, or None.
        runner: options of the simulated runner: noise, acceptance, link_bytes_per_s.
        is_sensitive: whether each coefficient is varied to see if the ranking survives.
    """

    policies: Sequence[str] = field(validator=_at_least_one)
    source: Source
    seeds: Sequence[int] = field(default=(0,), validator=_at_least_one)
    loads: Sequence[float] = field(default=(), validator=_loads)
    capacity: float | None = field(default=None, validator=_above_zero_or_none)
    limits: Mapping[str, Any] = field(factory=dict)
    latency: LinearLatency = field(factory=lambda: load_latency(DEFAULT_LATENCY))
    horizon: float | None = field(default=None, validator=_above_zero_or_none)
    runner: Mapping[str, Any] = field(factory=dict)
    is_sensitive: bool = False

    def __attrs_post_init__(self) -> None:
        if len(set(self.policies)) != len(self.policies):
            raise bad_field("policies", list(self.policies), "each once")
        if self.capacity is not None and not self.loads:
            raise bad_field("capacity", self.capacity, "with loads that are shares of it")
        for policy in self.policies:
            build_manager(complete_stack(parse_stack(policy)))
            if self.config(policy, self.seeds[0]).async_scheduling:
                raise bad_field("async_scheduling", True, "False in virtual time")

    def job(self, policy: str, seed: int, load: float | None, factor: float = 1.0) -> Job:
        """One run of it; curves are kept of the first seed."""
        return Job(
            label={"policy": policy, "seed": seed, "load": load, "factor": factor},
            policy=policy,
            source=self.source,
            config=self.config(policy, seed),
            latency=self.latency,
            seed=seed,
            resample=self.resamples,
            factor=factor,
            horizon=self.horizon,
            runner=self.runner,
            has_curves=seed == self.seeds[0],
        )

    def config(self, policy: str, seed: int) -> SchedulerConfig:
        """The limits of one run: room for drafts only where the stack makes them."""
        fields = {**self.limits, "seed": seed}
        asked = fields.pop("num_spec_tokens", None)
        if proposes_drafts(complete_stack(parse_stack(policy))):
            fields["num_spec_tokens"] = DEFAULT_NUM_DRAFTS if asked is None else asked
        return default_config(self.latency, **fields)

    @property
    def resamples(self) -> bool:
        """Whether the gaps of a trace are drawn again."""
        return self.source.is_trace and len(self.seeds) > 1
