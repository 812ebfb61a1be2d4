"""The plugin stack: from what a caller lists to one checked pluggy manager per Scheduler.

The order is the caller's, last asked first; what is installed never decides it.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pluggy

from framework import checks
from framework.errors import PluginError
from framework.hookspecs import KINDS, PARAMETERS, PROJECT
from framework.loading import (
    GROUP,
    InstalledPlugin,
    Spec,
    installed_plugins,
    load_plugin,
    plugin_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "DEFAULT_STACK",
    "GROUP",
    "InstalledPlugin",
    "Spec",
    "build_manager",
    "complete_stack",
    "implemented_hooks",
    "installed_plugins",
    "load_plugin",
    "parse_stack",
    "plugin_name",
]

DEFAULT_STACK: Final = ("kv_blocks", "chunked_prefill", "fcfs")
"""Mechanism first, policy last; the last is asked first."""

MECHANISM: Final = (
    ("kv_blocks", "allocate"),
    ("chunked_prefill", "split_prefill"),
    ("fcfs", "order_waiting"),
)
"""What `complete_stack` puts below a policy where nothing in it implements the hook."""


class _Manager(pluggy.PluginManager):
    """A manager that evaluates no property or empty slot while it looks for hooks."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        static = inspect.getattr_static(plugin, name, None)
        if not inspect.isroutine(static) or isinstance(static, cached_property):
            return None
        return super().parse_hookimpl_opts(plugin, name)

    def implementations(self, plugin: object) -> Iterator[tuple[str, Any, Any]]:
        """(hook name, bound method, options) of each method marked as implementation."""
        for attribute in dir(plugin):
            options = self.parse_hookimpl_opts(plugin, attribute)
            if options is not None:
                hook = options.get("specname") or attribute
                yield hook, getattr(plugin, attribute), options


# ---------------------------------------------------------------------------------------------
# what a caller lists
# ---------------------------------------------------------------------------------------------


def parse_stack(text: str) -> list[str]:
    """'fcfs+chunked_prefill(cap=256)' -> its parts: split at + outside of parentheses."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif depth and character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        if depth < 0:
            break
        if character == "+" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth or quote:
        raise PluginError(f"stack {text!r}: its parentheses and quotes do not match")
    parts = [part.strip() for part in parts]
    if not all(parts):
        raise PluginError(f"stack {text!r}: a name is missing around '+'; write one+another")
    return parts


def complete_stack(specs: Sequence[Spec]) -> list[Spec]:
    """The specs on top of what a stack needs and they do not bring themselves.

    That is kv_blocks if none implements `allocate`, chunked_prefill if none implements
    `split_prefill`, fcfs if none implements `order_waiting`.
    """
    if isinstance(specs, str):
        raise PluginError(f"plugins: got {specs!r}, allowed: a list, such as [{specs!r}]")
    plugins = [load_plugin(spec) for spec in specs]
    checks.check_names(plugins)
    names = {plugin_name(plugin) for plugin in plugins}
    hooks = {hook for plugin in plugins for hook in implemented_hooks(plugin)}
    missing = [name for name, hook in MECHANISM if hook not in hooks and name not in names]
    return [*missing, *specs]


def implemented_hooks(plugin: object) -> list[str]:
    """The hooks that a plugin implements, wrappers left out, in the order of the specs."""
    found = {
        hook
        for hook, _, options in _Manager(PROJECT).implementations(plugin)
        if not options["wrapper"] and not options["hookwrapper"]
    }
    return [hook for hook in PARAMETERS if hook in found]


# ---------------------------------------------------------------------------------------------
# the manager
# ---------------------------------------------------------------------------------------------


def build_manager(plugins: Sequence[Spec]) -> pluggy.PluginManager:
    """A manager with all specs and these plugins, checked; one for each Scheduler.

    Parameters:
        plugins: the stack, last asked first; see `Spec`.

    Raises:
        PluginError: a plugin cannot be loaded, implements a hook wrongly, or does not go with
            another one. The message names plugin and hook.
    """
    manager = _Manager(PROJECT)
    for kind in KINDS:
        specs: Any = kind()  # an instance, so that `self` is no argument
        manager.add_hookspecs(specs)
    loaded = [load_plugin(spec) for spec in plugins]
    checks.check_names(loaded)
    for plugin in loaded:
        name = plugin_name(plugin)
        checks.check_api(name, plugin)
        implementations = list(manager.implementations(plugin))
        checks.check_any(name, plugin, implementations)
        for hook, method, options in implementations:
            if hook in PARAMETERS or not options["optionalhook"]:
                checks.check_implementation(name, hook, method, options)
        manager.register(plugin, name)
    checks.check_owners(manager)
    checks.check_order(manager, [plugin_name(plugin) for plugin in loaded])
    return manager
