"""`simulate_policy`: one stack on one workload in virtual time, in one call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define

from framework.clock import VirtualClock
from framework.config import SchedulerConfig
from framework.engine.models import runner_class
from framework.latency import LinearLatency, load_latency
from framework.scheduler import Scheduler
from framework.stack import complete_stack
from framework.study.drive import Drive, check_sync
from framework.study.meter import Meter
from framework.study.outcome import Outcome, outcome_of
from framework.study.recording import header_of, recording_to

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from framework.loading import Spec
    from framework.study.drive import TimedRunner
    from framework.study.recording import Sink
    from framework.study.workload import Workload

DEFAULT_LATENCY = "llama3-8b-a100"


@define(eq=False)
class Run:
    """A finished run: what it came to, and what it was measured with.

    Attributes:
        oracles: names of the plugins that were told true lengths; what they predict, no server
            could know.
        scheduler_s: real seconds that the scheduler took.
    """

    outcome: Outcome
    meter: Meter
    scheduler: Scheduler
    oracles: tuple[str, ...] = ()
    scheduler_s: float = 0.0


def default_config(latency: LinearLatency, **limits: Any) -> SchedulerConfig:
    """Limits of a server of that model and GPU; its whole KV memory, unless given."""
    fields: dict[str, Any] = {"max_num_batched_tokens": 2048, "max_num_seqs": 256, **limits}
    size = fields.get("block_size", 16)
    if latency.num_kv_tokens is not None and type(size) is int and size > 0:
        fields.setdefault("num_blocks", latency.num_kv_tokens // size + 1)
    return SchedulerConfig.from_mapping(fields)


def simulate_policy(
    workload: Workload,
    plugins: Sequence[Spec] = (),
    *,
    config: SchedulerConfig | None = None,
    latency: LinearLatency | str = DEFAULT_LATENCY,
    predicts: LinearLatency | None = None,
    tenant_weights: Mapping[str, float] | None = None,
    horizon: float | None = None,
    on_end: Callable[[int], object] | None = None,
    runner_options: Mapping[str, Any] | None = None,
    record: str | Path | Sink | None = None,
    around: Callable[[TimedRunner], TimedRunner] | None = None,
) -> Run:
    """Run a workload.

    A plugin with a method `expect(request_id, num_output_tokens)` is an oracle: it is told each
    true length just before the request arrives, and nobody else is.

    Args:
        workload: what arrives.
        plugins: the stack, last asked first; the usual plugins are put beneath where nothing in
            it does their work.
        config: the limits; None = `default_config` of the latency model.
        latency: how long steps take: a model, a name of `latency_names`, or a file.
        predicts: what policies may predict with; None = the same model.
        tenant_weights: {tenant: share} for fairness; None = the workload's own.
        horizon: seconds after which the run is cut; None = until all requests have ended.
        on_end: told how many requests have just ended.
        runner_options: of the simulated runner: noise, acceptance, link_bytes_per_s, seed.
        record: a file in which every step is kept, or what takes its lines; see `recording`.
        around: what takes the place of the simulated runner, given that one.

    Raises:
        PluginError, ConfigError: the stack or a limit is wrong.
        PolicyError, StallError: the policy failed.
    """
    model = load_latency(latency) if not isinstance(latency, LinearLatency) else latency
    limits = config or default_config(model)
    options = dict(runner_options or {})
    if model.kv_bytes_per_token is not None:
        options.setdefault("kv_bytes_per_token", model.kv_bytes_per_token)
    clock = VirtualClock()
    runner: TimedRunner = runner_class("simulated")(limits, model, clock, **options)
    runner = runner if around is None else around(runner)
    meter = Meter(dict(workload.tenant_weights if tenant_weights is None else tenant_weights))
    stack = full_stack(plugins, workload)
    header = partial(
        header_of,
        workload,
        stack,
        limits,
        model,
        predicts,
        tenant_weights=dict(meter.tenant_weights),
        horizon=horizon,
        runner_options=dict(runner_options or {}),
    )
    with recording_to(record, header, meter.errors) as recording:
        plugins = [*stack, meter, *recording]
        scheduler = Scheduler(limits, plugins, clock=clock, latency=predicts or model)
        check_sync(scheduler)
        oracles = {name: plugin for name, plugin in scheduler.plugins if is_oracle(plugin)}
        told: list[Any] = list(oracles.values())
        drive = Drive(workload, scheduler, runner, meter, horizon, on_end, told)
        drive.run()
    outcome = outcome_of(meter, scheduler)
    return Run(outcome, meter, scheduler, tuple(oracles), drive.scheduler_s)


def is_oracle(plugin: object) -> bool:
    """Whether a plugin asks to be told true lengths."""
    return callable(getattr(plugin, "expect", None))


def full_stack(plugins: Sequence[Spec], workload: Workload) -> list[Spec]:
    """The stack with what is usual beneath; without a prefix cache where nothing can be found."""
    stack: list[Spec] = list(complete_stack(plugins))
    if not workload.shares_prefixes and "kv_blocks" not in plugins and "kv_blocks" in stack:
        stack[stack.index("kv_blocks")] = "kv_blocks(enable_prefix_caching=False)"
    return stack
