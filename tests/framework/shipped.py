"""Which shipped plugins decide who is served, and which do the rest."""

from __future__ import annotations

from importlib.metadata import entry_points

from framework.stack import implemented_hooks, load_plugin

ORDERING = {"order_waiting", "select_waiting", "order_running", "pick_displaced", "may_admit"}
SHIPPED = sorted(
    entry.name for entry in entry_points(group="headway.plugins") if entry.dist.name == "headway"
)
POLICIES = [name for name in SHIPPED if ORDERING & set(implemented_hooks(load_plugin(name)))]
PARTS = [name for name in SHIPPED if name not in POLICIES]
