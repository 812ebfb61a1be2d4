"""The plugin stack: from what a caller lists to one checked pluggy manager per Scheduler.

The order is the caller's, last asked first; what is installed never decides it.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pluggy

from framework.errors import PluginError, did_you_mean
from framework.hookspecs import (
    API_VERSION,
    KIND_OF,
    KINDS,
    PARAMETERS,
    PROJECT,
    Observe,
    OwnBlocks,
    OwnEncoder,
    OwnExternal,
    SetUp,
)
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
        if character == "+" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth or quote:
        raise PluginError(f"stack {text!r}: a parenthesis or quote is not closed")
    parts = [part.strip() for part in parts]
    if not all(parts):
        raise PluginError(f"stack {text!r}: a name is missing around '+'; write one+another")
    return parts


def complete_stack(specs: Sequence[Spec]) -> list[Spec]:
    """The specs on top of what a stack needs and they do not bring themselves.

    That is kv_blocks if none implements `allocate`, chunked_prefill if none implements
    `split_prefill`, fcfs if none implements `order_waiting`.
    """
    plugins = [load_plugin(spec) for spec in specs]
    _check_names(plugins)
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
    _check_names(loaded)
    for plugin in loaded:
        name = plugin_name(plugin)
        _check_api(name, plugin)
        for hook, method, options in manager.implementations(plugin):
            if hook in PARAMETERS or not options["optionalhook"]:
                _check_implementation(name, hook, method, options)
        manager.register(plugin, name)
    _check_owners(manager)
    _check_order(manager, [plugin_name(plugin) for plugin in loaded])
    return manager


def _check_names(plugins: Sequence[object]) -> None:
    for place, plugin in enumerate(plugins):
        name = plugin_name(plugin)
        if any(plugin is other for other in plugins[:place]):
            raise PluginError(f"plugin {name!r}: the same instance stands twice in the stack")
        if type(plugin).__eq__ is not object.__eq__:
            raise PluginError(
                f"plugin {name!r} compares by value, so two of it would be taken for one: "
                f"write @define(eq=False) on {type(plugin).__name__}"
            )
        if any(name == plugin_name(other) for other in plugins[:place]):
            raise PluginError(
                f"two plugins of the stack are called {name!r}; give one an attribute "
                "`name` of its own"
            )


def _check_api(name: str, plugin: object) -> None:
    wanted = getattr(plugin, "headway_api", None)
    if wanted is None:
        return
    match wanted:
        case (int(major), int(minor)) if major == API_VERSION[0] and minor <= API_VERSION[1]:
            return
        case (int(), int()):
            major, minor = API_VERSION
            raise PluginError(
                f"plugin {name!r} needs hook API {wanted[0]}.{wanted[1]}, and this Headway has "
                f"{major}.{minor}; allowed: major {major}, minor at most {minor}"
            )
    raise PluginError(
        f"plugin {name!r}, headway_api: got {wanted!r}, allowed: (major, minor), two ints"
    )


def _check_implementation(name: str, hook: str, method: Any, options: dict[str, Any]) -> None:
    """One implementation against its spec, with every mistake named before pluggy sees it."""
    who = f"plugin {name!r}, hook {hook!r}"
    if hook not in PARAMETERS:
        raise PluginError(
            f"plugin {name!r}: there is no hook {hook!r}.{did_you_mean(hook, PARAMETERS)}"
        )
    if options["hookwrapper"]:
        raise PluginError(f"{who}: hookwrapper=True is the old style; write wrapper=True")
    _check_parameters(who, hook, method)
    if inspect.iscoroutinefunction(method):
        raise PluginError(f"{who}: it is async, and nobody would await it; write a plain def")
    is_generator = inspect.isgeneratorfunction(method)
    if options["wrapper"] and not is_generator:
        raise PluginError(f"{who}: a wrapper has exactly one yield, and this one has none")
    if is_generator and not options["wrapper"] and KIND_OF[hook] in (Observe, SetUp):
        raise PluginError(f"{who}: it has a yield and would never run; write wrapper=True")


def _check_parameters(who: str, hook: str, method: Any) -> None:
    allowed = PARAMETERS[hook]
    listed = ", ".join(allowed) or "none"
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise PluginError(
                f"{who}: {str(parameter).partition(':')[0]!r} would receive nothing; name the "
                f"arguments you use, allowed: {listed}"
            )
        if parameter.name not in allowed:
            raise PluginError(
                f"{who}: there is no argument {parameter.name!r}."
                f"{did_you_mean(parameter.name, allowed)} Allowed: {listed}"
            )
        if parameter.default is not parameter.empty:
            raise PluginError(
                f"{who}: the argument {parameter.name!r} has a default, which would never be "
                "used; leave it out"
            )


def _claims(manager: pluggy.PluginManager, hooks: Sequence[str]) -> dict[str, list[str]]:
    """{plugin name: those of the hooks that it implements}, wrappers left out."""
    claims: dict[str, list[str]] = {}
    for hook in hooks:
        for one in getattr(manager.hook, hook).get_hookimpls():
            if not one.wrapper:
                claims.setdefault(one.plugin_name, []).append(hook)
    return claims


def _check_owners(manager: pluggy.PluginManager) -> None:
    """One owner a group; blocks are given and taken back by the same hand."""
    groups = {"KV blocks": OwnBlocks, "external KV": OwnExternal, "the encoder cache": OwnEncoder}
    for what, group in groups.items():
        claims = _claims(manager, [hook for hook, kind in KIND_OF.items() if kind is group])
        if len(claims) > 1:
            who = " and ".join(f"{name!r} ({', '.join(claims[name])})" for name in claims)
            raise PluginError(f"{what} can have one owner, and {who} claim to be it; leave one out")
        for name, hooks in claims.items():
            halves = {"allocate", "release"}.intersection(hooks)
            if len(halves) == 1:
                (lone,) = halves
                (other,) = {"allocate", "release"} - halves
                raise PluginError(
                    f"plugin {name!r} implements {lone!r} without {other!r}; an owner of blocks "
                    "gives them and takes them back"
                )


def _check_order(manager: pluggy.PluginManager, stack: Sequence[str]) -> None:
    """A `select_waiting` below the owner of the order would overrule it unseen."""
    orders = [one for one in manager.hook.order_waiting.get_hookimpls() if not one.wrapper]
    if not orders:
        return
    owner = orders[-1].plugin_name
    for name in _claims(manager, ["select_waiting"]):
        if stack.index(name) < stack.index(owner):
            raise PluginError(
                f"plugin {name!r} implements 'select_waiting' and stands before {owner!r}, whose "
                f"'order_waiting' it would overrule unseen; put {name!r} after {owner!r}"
            )
