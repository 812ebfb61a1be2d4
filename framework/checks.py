"""What is checked when a stack is built; every refusal names plugin and hook.

`stack` calls these in order: each plugin by itself before pluggy sees it, then all together.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from framework.errors import PluginError, did_you_mean
from framework.hookspecs import (
    API_VERSION,
    KIND_OF,
    PARAMETERS,
    Observe,
    OwnBlocks,
    OwnEncoder,
    OwnExternal,
    SetUp,
)
from framework.loading import plugin_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pluggy


def check_names(plugins: Sequence[object]) -> None:
    """Nobody stands twice, each is itself only, and each name is one plugin."""
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


def check_api(name: str, plugin: object) -> None:
    """`headway_api`, where a plugin has it: same major, at most this minor."""
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


def check_any(name: str, plugin: object, implementations: Sequence[object]) -> None:
    """A plugin without a single hook was meant to have some."""
    if not implementations:
        raise PluginError(
            f"plugin {name!r} ({type(plugin).__name__}) implements no hook; mark its methods "
            "with @hookimpl"
        )


def check_implementation(name: str, hook: str, method: Any, options: dict[str, Any]) -> None:
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


def check_owners(manager: pluggy.PluginManager) -> None:
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


def check_order(manager: pluggy.PluginManager, stack: Sequence[str]) -> None:
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
