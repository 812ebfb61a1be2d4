"""Resolved hooks: their form, how kinds combine answers, and whose fault an error is."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

import attrs
import pytest
from attrs import define, field

from framework import PolicyError, Request, SamplingParams, hookimpl
from framework.blaming import culprit
from framework.hooks import NOTHING, Hooks, resolve
from framework.hookspecs import (
    KIND_OF,
)
from framework.stack import build_manager


class BoomError(Exception):
    """What a misbehaving implementation raises."""


# ---------------------------------------------------------------------------------------------
# the form of the callables
# ---------------------------------------------------------------------------------------------


@define(eq=False)
class Says:
    """Gives one answer to a few hooks, with their full signatures."""

    name: str
    gives: Any
    heard: list[Any] = field(factory=list)

    @hookimpl
    def select_waiting(self, waiting: Any, step: Any) -> Any:
        return self.gives

    @hookimpl
    def cap_num_new_tokens(self, request: Any, num_new_tokens: Any, step: Any) -> Any:
        return self.gives

    @hookimpl
    def may_admit(self, request: Any, num_new_tokens: Any, hit: Any, step: Any) -> Any:
        return self.gives

    @hookimpl
    def extend_output(self, output: Any, step: Any) -> Any:
        return self.gives

    @hookimpl
    def request_finished(self, request: Any) -> Any:
        self.heard.append(request)
        return self.gives


@define(eq=False)
class Orders:
    """Gives one key to whoever enters the queue."""

    name: str
    key: Any
    heard: list[Any] = field(factory=list)

    @hookimpl
    def order_waiting(self, request: Any) -> Any:
        self.heard.append(request)
        return self.key


def hooks_of(*plugins: object, trace: bool = False) -> Hooks:
    return resolve(build_manager(plugins), trace)


def a_request() -> Request:
    return Request("r1", [1, 2, 3], SamplingParams(max_tokens=4))


def test_every_spec_has_a_field_of_the_type_of_its_signature() -> None:
    wanted = {}
    for hook, kind in KIND_OF.items():
        signature = inspect.signature(getattr(kind, hook))
        kinds = [one.annotation for one in list(signature.parameters.values())[1:]]
        wanted[hook] = f"Callable[[{', '.join(kinds)}], {signature.return_annotation}]"
    fields = {each.name: each.type for each in attrs.fields(Hooks) if each.name[0] != "_"}
    assert fields == wanted


@pytest.mark.parametrize("trace", [False, True])
def test_a_hook_that_nobody_implements_is_the_shared_no_op(trace: bool) -> None:
    hooks = hooks_of(trace=trace)
    assert all(getattr(hooks, hook) is NOTHING for hook in KIND_OF)
    assert hooks.select_waiting("any", "thing") is None


def test_one_full_implementation_is_the_bound_method_itself() -> None:
    plugin = Says("a", 5)
    hooks = hooks_of(plugin)
    assert hooks.select_waiting == plugin.select_waiting
    assert hooks.cap_num_new_tokens == plugin.cap_num_new_tokens
    assert hooks.request_finished == plugin.request_finished


def test_the_last_in_the_stack_answers_first() -> None:
    assert hooks_of(Says("a", 1), Says("b", 2)).select_waiting("w", "s") == 2
    assert hooks_of(Says("a", 1), Says("b", None)).select_waiting("w", "s") == 1


@pytest.mark.parametrize("trace", [False, True])
def test_of_several_orders_only_the_last_in_the_stack_is_asked(trace: bool) -> None:
    first, last = Orders("a", (1,)), Orders("b", None)
    order = hooks_of(first, last, trace=trace).order_waiting
    assert order("r") is None
    assert (first.heard, last.heard) == ([], ["r"])


@pytest.mark.parametrize("trace", [False, True])
def test_limits_take_the_least_int_and_false_over_true(trace: bool) -> None:
    three, none, two = Says("a", 3), Says("b", None), Says("c", 2)
    assert hooks_of(three, none, two, trace=trace).cap_num_new_tokens("r", 9, "s") == 2
    assert hooks_of(none, trace=trace).may_admit("r", 1, "h", "s") is True
    yes, no = Says("d", True), Says("e", False)
    assert hooks_of(no, yes, none, trace=trace).may_admit("r", 1, "h", "s") is False


@pytest.mark.parametrize("gives", [0, 1, "no"])
def test_a_veto_that_is_no_bool_names_plugin_request_and_answer(gives: object) -> None:
    hooks = hooks_of(Says("fine", True), Says("odd", gives))
    with pytest.raises(PolicyError, match=r"'odd', hook 'may_admit' for request 'r1'.*allowed: Tr"):
        hooks.may_admit(a_request(), 1, "h", "s")


def test_a_cap_that_is_no_int_names_plugin_and_answer() -> None:
    hooks = hooks_of(Says("fine", 3), Says("odd", 2.5))
    with pytest.raises(PolicyError, match=r"'odd', hook 'cap_num_new_tokens'.*answered 2\.5"):
        hooks.cap_num_new_tokens(a_request(), 9, "s")


def test_a_field_of_the_output_given_twice_names_both_plugins() -> None:
    hooks = hooks_of(Says("a", {"mask": 1}), Says("b", {"mask": 2, "x": 1}))
    with pytest.raises(PolicyError, match=r"'b, a'.*both gave the field 'mask'"):
        hooks.extend_output("o", "s")


def test_fields_of_the_output_must_come_in_a_mapping() -> None:
    with pytest.raises(PolicyError, match=r"'a', hook 'extend_output'.*\[1\].*a mapping"):
        hooks_of(Says("a", [1])).extend_output("o", "s")


class Unlists:
    """A wrapper of a list hook that forgets that it is given a list."""

    @hookimpl(wrapper=True)
    def may_admit(self) -> Any:
        yield
        return True


def test_a_wrapper_of_a_limit_must_hand_a_list_on() -> None:
    hooks = hooks_of(Says("a", True), Unlists())
    with pytest.raises(PolicyError, match=r"'a, unlists', hook 'may_admit'.*answered True.*list"):
        hooks.may_admit("r", 1, "h", "s")


@pytest.mark.parametrize("trace", [False, True])
def test_monitoring_hears_the_traced_build_only(trace: bool) -> None:
    manager = build_manager([Orders("order", 1), Says("a", None), Says("b", None)])
    heard: list[str] = []
    manager.add_hookcall_monitoring(
        lambda hook, _impls, _kwargs: heard.append(hook), lambda *_args: None
    )
    hooks = resolve(manager, trace)
    hooks.select_waiting("w", "s")
    hooks.order_waiting("r")
    hooks.request_finished("r")
    assert heard == (["select_waiting", "order_waiting", "request_finished"] if trace else [])


# ---------------------------------------------------------------------------------------------
# whose fault
# ---------------------------------------------------------------------------------------------


def test_blame_names_the_only_implementation_and_nobody_without_one() -> None:
    hooks = hooks_of(Says("a", 1))
    assert hooks.blame("select_waiting") == "a"
    assert hooks.blame("release") == "nobody"


def test_blame_follows_the_last_answer() -> None:
    quiet, loud = Says("quiet", None), Says("loud", 4)
    hooks = hooks_of(loud, quiet)
    assert hooks.blame("select_waiting") == "quiet, loud"
    hooks.select_waiting("w", "s")
    assert hooks.blame("select_waiting") == "loud"
    loud.gives = None
    hooks.select_waiting("w", "s")
    assert hooks.blame("select_waiting") == "quiet, loud"


def test_blame_names_who_set_the_tightest_limit() -> None:
    hooks = hooks_of(Says("wide", 8), Says("tight", -3), Says("silent", None))
    hooks.cap_num_new_tokens("r", 9, "s")
    assert hooks.blame("cap_num_new_tokens") == "tight"


class Passes:
    """A wrapper that changes nothing."""

    @hookimpl(wrapper=True)
    def select_waiting(self) -> Any:
        return (yield)


def test_blame_shares_an_answer_with_the_wrappers() -> None:
    hooks = hooks_of(Says("a", 1), Says("b", 2), Passes())
    hooks.select_waiting("w", "s")
    assert hooks.blame("select_waiting") == "b, a, passes"


def shielded(function: Any) -> Any:
    @wraps(function)
    def call(*args: Any) -> Any:
        if args[-1] == "poison":
            raise BoomError
        return function(*args)

    return call


@define(eq=False)
class Fails:
    """Raises in several ways."""

    name: str
    ask: Any = None

    @hookimpl
    def select_waiting(self, step: Any) -> Any:
        return self.ask(step) if self.ask else self.fail()

    @hookimpl
    @shielded
    def release(self, request: Any) -> Any:
        self.fail()

    @hookimpl
    def order_running(self, running: Any) -> Any:
        yield from running
        self.fail()

    def fail(self) -> Any:
        raise BoomError(self.name)

    @hookimpl
    def allocate(self, request: Any) -> Any:
        return [0]


def culprit_of(manager: Any, call: Any, *args: Any) -> tuple[str, str] | None:
    with pytest.raises(BoomError) as caught:
        call(*args)
    found = culprit(caught.value, manager)
    return None if found is None else found[:2]


def test_culprit_tells_two_instances_of_one_class_apart() -> None:
    first = Fails("first")
    manager = build_manager([first, Passes()])
    manager.register(Says("other", None), "other")
    second = Fails("second", ask=lambda step: None)
    manager.register(second, "second")
    hooks = resolve(manager)
    assert culprit_of(manager, hooks.select_waiting, "w", "s") == ("first", "select_waiting")
    second.ask = None
    assert culprit_of(manager, hooks.select_waiting, "w", "s") == ("second", "select_waiting")


def test_culprit_sees_through_decorators_and_late_generators() -> None:
    manager = build_manager([Fails("late")])
    hooks = resolve(manager)
    assert culprit_of(manager, hooks.release, "r") == ("late", "release")
    assert culprit_of(manager, hooks.release, "poison") == ("late", "release")
    assert culprit_of(manager, list, hooks.order_running([1], "s")) == ("late", "order_running")


def test_culprit_is_the_innermost_plugin() -> None:
    inner = Fails("inner")
    outer = Fails("outer")
    manager = build_manager([])
    manager.register(inner, "inner")
    manager.register(outer, "outer")
    outer.ask = lambda step: list(inner.order_running([]))
    call = resolve(manager).select_waiting
    assert culprit_of(manager, call, "w", "s") == ("inner", "order_running")


def test_an_error_of_the_core_has_no_culprit() -> None:
    manager = build_manager([Fails("innocent")])

    def core() -> None:
        resolve(manager).allocate("r", 1, None, "s")
        raise BoomError("core")

    assert culprit_of(manager, core) is None
