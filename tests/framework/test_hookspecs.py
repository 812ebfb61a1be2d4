"""The specs are the documentation: each says what, when, and every argument."""

from __future__ import annotations

import inspect
import re

import pytest

from framework.hookspecs import KIND_OF, PARAMETERS, Collect, Limit, Observe, SetUp
from framework.stack import build_manager

HOOKS = list(KIND_OF)


def doc(hook: str) -> str:
    text = inspect.getdoc(getattr(KIND_OF[hook], hook))
    assert text, f"{hook} has no docstring"
    return text


@pytest.mark.parametrize("hook", HOOKS)
def test_the_docstring_begins_with_one_sentence(hook: str) -> None:
    first, _, rest = doc(hook).partition("\n")
    assert first.endswith(".")
    assert rest.startswith("\n")


@pytest.mark.parametrize("hook", HOOKS)
def test_the_docstring_says_when(hook: str) -> None:
    assert re.search(r"^(In the step|When): \S", doc(hook), re.MULTILINE)


@pytest.mark.parametrize("hook", HOOKS)
def test_the_docstring_explains_every_argument_and_no_other(hook: str) -> None:
    _, _, section = doc(hook).partition("Parameters:\n")
    assert tuple(re.findall(r"^    (\w+): \S", section, re.MULTILINE)) == PARAMETERS[hook]


@pytest.mark.parametrize("hook", HOOKS)
def test_the_docstring_gives_the_cost(hook: str) -> None:
    assert re.search(r"\bCost: \S", doc(hook))


@pytest.mark.parametrize("hook", HOOKS)
def test_the_docstring_explains_default_and_returns_where_an_answer_counts(hook: str) -> None:
    text = doc(hook)
    kind = KIND_OF[hook]
    returns = inspect.signature(getattr(kind, hook)).return_annotation
    assert ("\nDefault" in text) == (kind not in (Observe, SetUp))
    assert ("\nReturns: " in text) == (returns != "None")


@pytest.mark.parametrize("hook", HOOKS)
def test_no_argument_has_a_default(hook: str) -> None:
    parameters = inspect.signature(getattr(KIND_OF[hook], hook)).parameters.values()
    assert all(parameter.default is parameter.empty for parameter in parameters)


@pytest.mark.parametrize("hook", HOOKS)
def test_first_answers_and_lists_are_as_the_kind_says(hook: str) -> None:
    kind = KIND_OF[hook]
    options = build_manager([]).parse_hookspec_opts(kind, hook)
    assert options is not None
    assert options["firstresult"] == (kind not in (Limit, Collect, Observe, SetUp))
    assert not options["historic"]


def test_the_hooks_whose_names_are_fixed_are_there() -> None:
    fixed = {"select_waiting", "pick_preempt_victim", "compute_num_new_tokens", "allocate"}
    assert fixed <= set(HOOKS)
