"""Assembly: a stack with empty books, ready for requests. A scheduler has one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from framework.blaming import blamed
from framework.books import Books
from framework.errors import PluginError, PolicyError
from framework.hooks import NOTHING, resolve
from framework.reports import Setup
from framework.stack import build_manager, plugin_name
from framework.view import Surroundings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pluggy

    from framework.config import SchedulerConfig
    from framework.protocols import Clock, LatencyModel
    from framework.timing import Times


@define(eq=False)
class Assembly:
    """What a scheduler makes of a list of plugins.

    Attributes:
        manager: the checked stack.
        books: empty ones, with the stack's hooks.
        around: what every StepView shows besides the plan.
        probes: names of values that plugins want of the runner.
        counts_always: a running request that wants one token needs a decision all the same.
    """

    manager: pluggy.PluginManager
    books: Books
    around: Surroundings
    probes: set[str]
    counts_always: bool


def assemble(
    config: SchedulerConfig,
    plugins: Sequence[object],
    clock: Clock,
    latency: LatencyModel | None,
    *,
    trace: bool,
    times: Times | None,
) -> Assembly:
    """Build the stack and set every plugin up.

    Raises:
        PluginError: the stack cannot be built.
    """
    manager = build_manager(plugins)
    try:
        return _set_up(manager, config, clock, latency, trace=trace, times=times)
    except Exception as error:
        fault = blamed(error, manager)
        if isinstance(fault, PolicyError):
            raise PluginError(f"the stack cannot be set up: {fault}") from error
        raise


def _set_up(
    manager: pluggy.PluginManager,
    config: SchedulerConfig,
    clock: Clock,
    latency: LatencyModel | None,
    *,
    trace: bool,
    times: Times | None,
) -> Assembly:
    hooks = resolve(manager, trace=trace, times=times)
    books = Books(config, hooks, clock)
    books.kv = kv = hooks.kv_view(config)
    predict = hooks.predict_output_len
    around = Surroundings(
        config, kv, latency, lambda: books.running, lambda: books.loading, predict
    )
    counts_always = (
        config.async_scheduling
        or hooks.compute_num_new_tokens is not NOTHING
        or hooks.allocate_encoder is not NOTHING  # a chunk of one token may need room
    )
    assembly = Assembly(manager, books, around, set(), counts_always)
    hooks.scheduler_built(
        Setup(config, clock, books.waiting, kv, latency, assembly.probes, predict, plugin_name)
    )
    return assembly
