"""An error of a plugin names the request that it was asked about, or else the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from framework import (
    PolicyError,
    Request,
    RequestError,
    Scheduler,
    SchedulerConfig,
    StallError,
    hookimpl,
)
from framework.testing import TokenRunner, make_requests
from tests.support import FCFS, PRIORITY, bench

if TYPE_CHECKING:
    from collections.abc import Generator


class Unnamed:
    """A wrapper that names no parameter; its victim is another than the needy request."""

    @hookimpl(wrapper=True)
    def preempt_mode(self) -> Generator[None, Any, Any]:
        yield
        raise ValueError("oh")


class Named:
    """Names the victim, and asks a function of its own."""

    @hookimpl
    def preempt_mode(self, request: Request) -> None:
        fail(request)


class Counting:
    """Names something else."""

    @hookimpl
    def preempt_mode(self, displaced: bool) -> None:
        raise ValueError(displaced)


def fail(other: object) -> None:
    raise ValueError(other)


@pytest.mark.parametrize("options", [{}, {"timed": True}, {"trace": True}], ids=str)
@pytest.mark.parametrize("plugin", [Unnamed, Named, Counting])
def test_the_victim_is_named_and_not_the_needy(plugin: type, options: dict[str, bool]) -> None:
    stack = [*PRIORITY[:2], "priority(displace=True)", plugin()]
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=1), stack, **options)
    for name, priority in (("low", 1), ("high", 0)):
        (request,) = make_requests(1, prompt_len=4, max_tokens=3)
        request.request_id, request.priority = name, priority
        scheduler.add_request(request)
        if name == "low":
            output = scheduler.schedule()
            scheduler.update_from_output(output, TokenRunner(16).execute(output))
    with pytest.raises(PolicyError, match="'preempt_mode' for request 'low'") as caught:
        scheduler.schedule()
    assert (caught.value.request_id, caught.value.step) == ("low", 1)


class Wrong:
    """Answers with a stranger."""

    @hookimpl
    def order_running(self) -> list[str]:
        return ["nobody"]


def test_a_wrong_answer_names_the_step_where_no_request_is_known() -> None:
    b = bench((*FCFS, Wrong()))
    b.add("r", 5)
    with pytest.raises(PolicyError, match="'order_running' in step 0: answered") as caught:
        b.schedule()
    assert (caught.value.request_id, caught.value.step) == (None, 0)


class Raising:
    @hookimpl
    def request_arrived(self) -> None:
        raise KeyError("oops")


class Refusing:
    """Admits nobody named b; adds nobody named c."""

    @hookimpl
    def may_admit(self, request: Request) -> bool:
        return request.request_id != "b"

    @hookimpl
    def request_arrived(self, request: Request) -> None:
        if request.request_id == "c":
            raise ZeroDivisionError("c")


def test_a_stall_names_who_is_blocked() -> None:
    b = bench((*FCFS, Refusing()))
    b.add("a", 5, 2)
    b.add("b", 5, 2)
    with pytest.raises(StallError, match="'b' is blocked") as caught:
        b.finish()
    assert caught.value.request_id == "b"


def test_the_error_says_where_it_was_raised() -> None:
    b = bench((*FCFS, Raising()))
    with pytest.raises(PolicyError, match=r"raised KeyError: 'oops' \(test_blaming.py, line \d+\)"):
        b.add("r", 5)


def test_outside_a_step_there_is_no_step_to_name() -> None:
    b = bench((*FCFS, Refusing()))
    with pytest.raises(PolicyError, match="'request_arrived' for request 'c'") as caught:
        b.add("c", 5)
    assert (caught.value.request_id, caught.value.step) == ("c", None)
    with pytest.raises(RequestError, match="prompt has 0 tokens"):
        b.add("d", [])
