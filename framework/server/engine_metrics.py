"""What the engine says of itself, as Prometheus metrics: asked when somebody looks."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from attrs import define, field
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from framework.errors import HeadwayError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeAlias

    from prometheus_client.core import Metric

    from framework.server.faces import EngineLike, StatsLike

    Key: TypeAlias = tuple[str, ...]

PATIENCE_S: Final = 1.0
COUNTERS: Final = {
    "num_preemptions": ("vllm:num_preemptions", "Requests that lost their place."),
    "num_prefix_queried": ("vllm:prefix_cache_queries", "Prompt tokens looked for in the cache."),
    "num_prefix_hit": ("vllm:prefix_cache_hits", "Prompt tokens found in the cache."),
    "num_drafts": ("vllm:spec_decode_num_draft_tokens", "Draft tokens that were verified."),
    "num_drafts_accepted": ("vllm:spec_decode_num_accepted_tokens", "Draft tokens accepted."),
}
log = logging.getLogger("headway.server")


@define(eq=False)
class Totals:
    """Counts that never fall: where an engine begins anew, its counts are added to what was."""

    _seen: dict[Key, float] = field(factory=dict)
    _before: dict[Key, float] = field(factory=dict)

    def update(self, counts: Mapping[Key, float]) -> None:
        """Take the counts as they stand now."""
        for key, count in counts.items():
            seen = self._seen.get(key, 0)
            if count < seen:
                self._before[key] = self._before.get(key, 0) + seen
            self._seen[key] = count

    def begin(self) -> None:
        """What was counted so far counts no more."""
        self._before = {key: -count for key, count in self._seen.items()}

    def items(self) -> Iterator[tuple[Key, float]]:
        """Every key and its total."""
        for key, count in self._seen.items():
            yield key, self._before.get(key, 0) + count

    def of(self, *key: str) -> float:
        """The total of one key."""
        return self._before.get(key, 0) + self._seen.get(key, 0)


@define(eq=False)
class EngineMetrics(Collector):
    """A collector of the engine's last known figures; `refresh` asks for new ones."""

    engine: EngineLike
    model_name: str
    _stats: StatsLike | None = field(default=None, init=False)
    _counts: Totals = field(factory=Totals, init=False)
    _calls: Totals = field(factory=Totals, init=False)
    _seconds: Totals = field(factory=Totals, init=False)

    async def begin(self) -> None:
        """From here on counts are told: what the server did before was for itself."""
        await self.refresh()
        for totals in (self._counts, self._calls, self._seconds):
            totals.begin()

    async def refresh(self) -> None:
        """Ask the engine; where it does not answer in time the last known figures stay."""
        try:
            stats = await asyncio.wait_for(self.engine.stats(), PATIENCE_S)
        except (TimeoutError, HeadwayError) as error:
            log.debug("no figures from the engine: %s", error or "it is busy")
            return
        self._stats = stats
        self._counts.update({(name,): stats.counters.get(name, 0) for name in COUNTERS})
        self._calls.update({(plugin, hook): calls for plugin, hook, calls, _ in stats.hooks})
        self._seconds.update({(plugin, hook): spent for plugin, hook, _, spent in stats.hooks})

    def describe(self) -> Iterator[Metric]:
        """Names are told when they are collected."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        stats, alive = self._stats, self.engine.is_alive
        up = 1.0 if alive else 0.0
        yield self._gauge("headway:engine_up", "1 while the engine takes requests.", up)
        running = stats.num_running if stats is not None and alive else 0
        waiting = stats.num_waiting if stats is not None and alive else 0
        usage = (stats.kv_usage if stats is not None and alive else None) or 0.0
        yield self._gauge("vllm:num_requests_running", "Requests with a place.", running)
        yield self._gauge("vllm:num_requests_waiting", "Requests without one.", waiting)
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", usage)
        for field_name, (name, told) in COUNTERS.items():
            count = CounterMetricFamily(name, told, labels=("model_name",))
            count.add_metric((self.model_name,), self._counts.of(field_name))
            yield count
        yield self._by_hook("headway:hook_calls", "Calls of a plugin's hook.", self._calls)
        yield self._by_hook("headway:hook_seconds", "Seconds spent in them.", self._seconds)

    def _gauge(self, name: str, told: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(name, told, labels=("model_name",))
        gauge.add_metric((self.model_name,), value)
        return gauge

    def _by_hook(self, name: str, told: str, totals: Totals) -> Metric:
        count = CounterMetricFamily(name, told, labels=("model_name", "plugin", "hook"))
        for (plugin, hook), total in totals.items():
            count.add_metric((self.model_name, plugin, hook), total)
        return count
