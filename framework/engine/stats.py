"""Stats: how an engine stands, as it says itself."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen


def _rows(rows: list[list[Any]]) -> list[tuple[str, str, int, float]]:
    return [(plugin, hook, num_calls, seconds) for plugin, hook, num_calls, seconds in rows]


@frozen(kw_only=True)
class Stats:
    """How an engine stands.

    Attributes:
        num_running, num_waiting: requests.
        kv_usage: share of the KV blocks that requests hold, 0 to 1; None without a pool.
        num_free_blocks, num_total_blocks: of the pool; None without one.
        counters: totals since its start, as `framework.books.Counters`.
        hooks: (plugin, hook, calls, seconds) of each implementation.
        is_paused: it makes no steps.
        plugins: names of the stack.
        num_plugin_errors, last_plugin_error: what plugins failed at since its start.
    """

    num_running: int
    num_waiting: int
    kv_usage: float | None
    num_free_blocks: int | None
    num_total_blocks: int | None
    counters: dict[str, Any]
    hooks: list[tuple[str, str, int, float]] = field(converter=_rows)
    is_paused: bool
    plugins: list[str]
    num_plugin_errors: int
    last_plugin_error: str | None
