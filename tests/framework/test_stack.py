"""Stacks: named, completed, and built into one checked manager, or refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from framework import PluginError, hookimpl
from framework.hookspecs import API_VERSION
from framework.stack import (
    DEFAULT_STACK,
    build_manager,
    complete_stack,
    implemented_hooks,
    installed_plugins,
    load_plugin,
    parse_stack,
    plugin_name,
)

MINE = """
from framework import hookimpl

class Mine:
    @hookimpl
    def select_waiting(self, waiting):
        return None
"""


@define(eq=False)
class Chooses:
    """Has an opinion on the next request."""

    name: str = "chooses"

    @hookimpl
    def select_waiting(self, waiting: Any) -> Any:
        return None


@define(eq=False)
class Orders:
    """Owns the order."""

    name: str = "orders"

    @hookimpl
    def order_waiting(self, request: Any) -> Any:
        return 0


def refused(*plugins: object) -> str:
    """What `build_manager` says about this stack."""
    with pytest.raises(PluginError) as caught:
        build_manager(plugins)
    return str(caught.value)


# ---------------------------------------------------------------------------------------------
# names and lists
# ---------------------------------------------------------------------------------------------


def test_a_plugin_is_called_by_its_name_or_by_its_class_in_snake_case() -> None:
    assert plugin_name(Chooses(name="mine")) == "mine"
    assert plugin_name(Chooses(name="")) == "chooses"
    for class_name, name in [("KvBlocks", "kv_blocks"), ("LLMPolicy2x", "llm_policy2x")]:
        assert plugin_name(type(class_name, (), {})()) == name


@pytest.mark.parametrize("plugin", installed_plugins(), ids=lambda plugin: plugin.name)
def test_installed_plugins_go_by_their_installed_name(plugin: Any) -> None:
    assert plugin_name(load_plugin(plugin.name)) == plugin.name
    assert plugin.distribution == "headway"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("fcfs", ["fcfs"]),
        (" fcfs + spec_decode ", ["fcfs", "spec_decode"]),
        ("a(b=(1+2,))+c(d=')+')", ["a(b=(1+2,))", "c(d=')+')"]),
        ('a(b="it\'s+")+./c.py:D', ['a(b="it\'s+")', "./c.py:D"]),
    ],
)
def test_a_stack_splits_at_plus_outside_parentheses(text: str, parts: list[str]) -> None:
    assert parse_stack(text) == parts


@pytest.mark.parametrize("text", ["", "+", "a++b", "a+"])
def test_a_stack_with_a_missing_name_is_refused(text: str) -> None:
    with pytest.raises(PluginError, match="a name is missing around '\\+'"):
        parse_stack(text)


@pytest.mark.parametrize("text", ["a(b", "a(b='+c)", "a)b("])
def test_a_stack_with_unmatched_parentheses_is_refused(text: str) -> None:
    with pytest.raises(PluginError, match="parentheses and quotes do not match"):
        parse_stack(text)


def test_a_stack_is_completed_from_below() -> None:
    assert complete_stack(["priority"]) == ["kv_blocks", "chunked_prefill", "priority"]
    assert complete_stack(["fcfs", "spec_decode"]) == [
        *("kv_blocks", "chunked_prefill", "fcfs", "spec_decode"),
    ]
    assert complete_stack([]) == list(DEFAULT_STACK)


def test_a_policy_without_an_order_gets_the_default_one_below(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    spec = f"{tmp_path}/mine.py:Mine"
    assert complete_stack([spec]) == ["kv_blocks", "chunked_prefill", "fcfs", spec]
    build_manager(complete_stack([spec]))


def test_mechanism_that_the_stack_brings_is_not_added() -> None:
    given = ["kv_blocks(enable_prefix_caching=False)", "chunked_prefill(cap=64)", "fcfs"]
    assert complete_stack(given) == given


def test_a_stack_with_another_owner_of_blocks_is_completed_around_it() -> None:
    owner = Owner("mine")
    assert complete_stack([owner]) == ["chunked_prefill", "fcfs", owner]


def test_one_name_twice_is_refused_when_completing() -> None:
    with pytest.raises(PluginError, match="two plugins of the stack are called 'fcfs'"):
        complete_stack(["fcfs", "fcfs"])


def test_implemented_hooks_come_in_the_order_of_the_specs() -> None:
    assert implemented_hooks(load_plugin("chunked_prefill"))[:1] == ["split_prefill"]
    assert implemented_hooks(Owner()) == ["match_prefix", "allocate", "release"]
    assert implemented_hooks(Wraps()) == []


# ---------------------------------------------------------------------------------------------
# building: one plugin
# ---------------------------------------------------------------------------------------------


def with_method(hook: str, function: Any, name: str = "faulty", **options: Any) -> object:
    """A plugin with one implementation."""
    return type("Faulty", (), {hook: hookimpl(**options)(function), "name": name})()


class Wraps:
    """A new-style wrapper."""

    @hookimpl(wrapper=True)
    def select_waiting(self, waiting: Any) -> Any:
        return (yield)


def generator() -> Any:
    def yields(self: Any) -> Any:
        yield

    return yields


async def coroutine(self: Any) -> Any:
    return None


@pytest.mark.parametrize(
    ("plugin", "parts"),
    [
        (
            with_method("select_waitin", lambda self: None),
            ["'faulty'", "no hook 'select_waitin'", "Did you mean 'select_waiting'"],
        ),
        (
            with_method("choose", lambda self: None, specname="alocate"),
            ["'faulty'", "no hook 'alocate'", "'allocate'"],
        ),
        (
            with_method("select_waiting", lambda self, wating: None),
            [
                "'faulty'",
                "no argument 'wating'",
                "Did you mean 'waiting'",
                "Allowed: waiting, step",
            ],
        ),
        (
            with_method("select_waiting", lambda self, step=None: None),
            ["'faulty'", "'select_waiting'", "argument 'step' has a default"],
        ),
        (
            with_method("select_waiting", lambda self, *args: None),
            ["'faulty'", "'select_waiting'", "'*args' would receive nothing", "waiting, step"],
        ),
        (
            with_method("select_waiting", lambda self, *, step: None),
            ["'faulty'", "'step' would receive nothing"],
        ),
        (
            with_method("select_waiting", generator(), hookwrapper=True),
            ["'faulty'", "'select_waiting'", "hookwrapper=True is the old style", "wrapper=True"],
        ),
        (
            with_method("select_waiting", lambda self: None, wrapper=True),
            ["'faulty'", "'select_waiting'", "exactly one yield"],
        ),
        (
            with_method("step_finished", generator()),
            ["'faulty'", "'step_finished'", "has a yield", "wrapper=True"],
        ),
        (with_method("is_ready", coroutine), ["'faulty'", "'is_ready'", "async"]),
        (object(), ["'object'", "implements no hook", "@hookimpl"]),
        ("os:path", ["implements no hook"]),
    ],
)
def test_a_faulty_implementation_is_named(plugin: object, parts: list[str]) -> None:
    message = refused("fcfs", plugin)
    assert [part for part in parts if part not in message] == []


def test_what_pluggy_allows_is_allowed() -> None:
    running = with_method("order_running", generator(), tryfirst=True)
    later = with_method("hook_of_a_later_api", lambda self: None, "later", optionalhook=True)
    build_manager(["fcfs", Wraps(), running, later])


class Watched:
    """A method that nearly has the name of a hook, and a property that must not run."""

    @hookimpl
    def request_finished(self, request: Any) -> None:
        raise AssertionError

    def request_finish(self) -> None:
        raise AssertionError

    @property
    def costly(self) -> int:
        raise AssertionError


def test_unmarked_methods_and_properties_are_left_alone() -> None:
    build_manager([Watched()])


@define
class ByValue:
    """An attrs class that forgot eq=False."""

    @hookimpl
    def release(self, request: Any) -> None:
        raise AssertionError


@dataclass(frozen=True)
class ByValueToo:
    """Hashable, and yet one instance equals another."""

    @hookimpl
    def request_finished(self, request: Any) -> None:
        raise AssertionError


@pytest.mark.parametrize("plugin", [ByValue(), ByValueToo()])
def test_a_plugin_that_compares_by_value_is_told_of_eq_false(plugin: object) -> None:
    message = refused(plugin)
    assert f"'{plugin_name(plugin)}' compares by value" in message
    assert f"write @define(eq=False) on {type(plugin).__name__}" in message


@pytest.mark.parametrize("wanted", [None, API_VERSION, (1, 0)])
def test_a_plugin_may_require_this_api(wanted: object) -> None:
    build_manager([with_api(wanted)])


@pytest.mark.parametrize("wanted", [(2, 0), (0, 0), (API_VERSION[0], API_VERSION[1] + 1)])
def test_a_plugin_for_another_api_is_refused(wanted: tuple[int, int]) -> None:
    message = refused(with_api(wanted))
    assert f"'chooses' needs hook API {wanted[0]}.{wanted[1]}" in message
    assert f"has {API_VERSION[0]}.{API_VERSION[1]}" in message


@pytest.mark.parametrize("wanted", ["1.0", 1, (1,), (1, "0")])
def test_an_api_requirement_is_a_pair_of_ints(wanted: object) -> None:
    assert f"headway_api: got {wanted!r}, allowed: (major, minor)" in refused(with_api(wanted))


def with_api(wanted: object) -> object:
    return type("Newer", (Chooses,), {"headway_api": wanted})()


# ---------------------------------------------------------------------------------------------
# building: plugins together
# ---------------------------------------------------------------------------------------------


@define(eq=False)
class Owner:
    """Claims KV blocks."""

    name: str = "owner"

    @hookimpl
    def match_prefix(self, request: Any) -> None:
        raise AssertionError

    @hookimpl
    def allocate(self, request: Any) -> None:
        raise AssertionError

    @hookimpl
    def release(self, request: Any) -> None:
        raise AssertionError


def test_one_instance_twice_is_refused() -> None:
    plugin = Chooses()
    assert "the same instance of" not in refused(Chooses(), Chooses())
    assert "'chooses': the same instance stands twice" in refused(plugin, plugin)


def test_two_plugins_of_one_name_are_refused() -> None:
    message = refused(Chooses("same"), Orders("same"))
    assert "two plugins of the stack are called 'same'" in message
    assert "`name`" in message


def test_two_owners_of_blocks_are_both_named_with_their_claims() -> None:
    message = refused("kv_blocks", Owner("mine"))
    assert "KV blocks can have one owner" in message
    assert "'mine' (match_prefix, allocate, release)" in message
    assert "'kv_blocks' (match_prefix, allocate, publish" in message


@pytest.mark.parametrize(
    ("hook", "what"),
    [("store_external", "external KV"), ("release_encoder", "the encoder cache")],
)
def test_the_other_groups_have_one_owner_too(hook: str, what: str) -> None:
    one, other = (with_method(hook, lambda self: None, name) for name in ("one", "other"))
    message = refused(one, other)
    assert f"{what} can have one owner" in message
    assert f"'one' ({hook}) and 'other' ({hook})" in message


@pytest.mark.parametrize(("has", "lacks"), [("allocate", "release"), ("release", "allocate")])
def test_an_owner_of_blocks_gives_and_takes_back(has: str, lacks: str) -> None:
    message = refused(with_method(has, lambda self: None))
    assert f"'faulty' implements '{has}' without '{lacks}'" in message


def test_a_choice_below_the_order_is_refused() -> None:
    message = refused(Chooses("mine"), Orders("theirs"))
    assert "'mine' implements 'select_waiting' and stands before 'theirs'" in message
    assert "put 'mine' after 'theirs'" in message


def test_the_last_order_is_the_one_that_counts() -> None:
    build_manager([Orders("a"), Chooses("c")])
    assert "stands before 'b'" in refused(Orders("a"), Chooses("c"), Orders("b"))


def test_a_wrapper_of_the_choice_may_stand_anywhere() -> None:
    build_manager([Wraps(), Orders()])


def test_two_managers_share_nothing() -> None:
    one, other = build_manager([Chooses()]), build_manager([Orders()])
    assert not one.hook.order_waiting.get_hookimpls()
    assert not other.hook.select_waiting.get_hookimpls()
