"""The result of a comparison: plain data, the same for equal inputs, to the byte.

    format        "headway.compare/1"
    headway       version
    policies      [{policy, stack: [spec], plugins: [{name, version, sha256}]}]: sha256 of its code
    workload      {name, source, counts, num_requests, is_trace, rate, resampled, has_slo, ...}
    config        the limits (SchedulerConfig); drafts: {policy: num_spec_tokens} where not 0
    latency       the model: name, coefficients, where they are from
    seeds         [0, 1, ...]
    loads         [0.5, ...], shares of capacity.rate, or [null]: as the workload comes
    capacity      {rate, policy, num_requests} (requests a second), or null
    horizon_s     or null
    runs          one for each load, seed and policy, in this order:
      {policy, seed, load, factor, workload (digest), num_requests, oracles, outcome,
       backlog_per_s, errors, num_errors, curves}     or {..., error: "sentence"}
      outcome     see `outcome.Outcome`; a distribution is {count, mean, p50, p90, p95, p99, max}
      curves      of the first seed only:
        time_s, kv_used_blocks, running, waiting, step_tokens   lists of equal length, <= 300
        kv_total_blocks
        cdf       {ttft_s, e2e_s, itl_s, end_s: [[value, share up to it], ...]}, <= 200 pairs
        service   {time_s, by_tenant: {tenant: [weighted service up to then]}}, 100 times, or {}
    summary       [{policy, load, metrics: {metric: {n, mean, low, high, samples}}}]: over seeds,
                  with 95 % t-intervals; samples = the least sample count of one run, or null
    paired        [{policy, baseline, load, metrics: {metric: {n, mean, low, high}}}]: differences
                  to the first policy, seed by seed
    alike         [[policy, ...]]: those whose runs came out the same in everything
    sensitivity   null, or {seed, load, factors, metrics: {metric: {ranking, survives, turned,
                  values: [{term, factor, by_policy}]}}}
    headline      a sentence

Metrics are those of `stats.METRICS`. Real times are no part of it; see `host_times`.
"""

from __future__ import annotations

import inspect
import os
import platform
from functools import cache
from hashlib import sha256
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.stack import complete_stack, installed_plugins, load_plugin, plugin_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework.loading import Spec

FORMAT = "headway.compare/1"


def headway_version() -> str:
    """Of the installed distribution."""
    return version("headway")


def describe_policy(policy: str, specs: Sequence[Spec]) -> dict[str, Any]:
    """A policy with its whole stack, and what code each part of it is."""
    stack = complete_stack(specs)
    return {
        "policy": policy,
        "stack": [str(spec) for spec in stack],
        "plugins": [_describe(load_plugin(spec)) for spec in stack],
    }


def host_times(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Real times of a study: they differ from run to run and from machine to machine."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "runs": list(records),
    }


def _describe(plugin: object) -> dict[str, Any]:
    kind = type(plugin)
    return {
        "name": plugin_name(plugin),
        "class": f"{kind.__module__}:{kind.__qualname__}",
        "version": _version_of(kind.__module__),
        "sha256": _code_digest(kind),
    }


@cache
def _version_of(module: str) -> str | None:
    """Of the distribution that offers it as a plugin or ships its package, or None."""
    for plugin in installed_plugins():
        if plugin.value.partition(":")[0] == module:
            return f"{plugin.distribution} {plugin.version}"
    owners = packages_distributions().get(module.partition(".")[0], [])
    return f"{owners[0]} {version(owners[0])}" if owners else None


def _code_digest(kind: type) -> str | None:
    """Of the file a class is in; of every Python file of its folder if that is a package."""
    try:
        path = Path(inspect.getsourcefile(kind) or "")
    except TypeError:
        return None
    if not path.is_file():
        return None
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    found = sha256()
    for file in files:
        found.update(file.relative_to(path.parent).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]
