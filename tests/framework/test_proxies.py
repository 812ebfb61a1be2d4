"""A proxy behaves as its plugin does, and tells what its hooks cost."""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest
from attrs import define, field

from framework import PolicyError, Request, SchedulerConfig, Setup, StepView, hookimpl
from framework.testing import make_requests, simulate
from framework.testing.proxies import Proxy, Watch, hook_rows, proxied

STACK = ("kv_blocks", "chunked_prefill")


@define(eq=False)
class Wrapping:
    """Turns the order around, by a wrapper under another name."""

    lengths: list[int] = field(factory=list)

    @hookimpl(wrapper=True, specname="order_waiting")
    def turned(self, request: Request) -> Generator[None, int, int]:
        time.sleep(0.002)
        answer = yield
        self.lengths.append(request.num_prompt_tokens)
        return -answer


@define(eq=False)
class Shortest:
    """Asks for a prediction, which is another hook."""

    _setup: Setup = field(init=False)

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        self._setup = setup

    @hookimpl
    def order_waiting(self, request: Request) -> int:
        self._setup.predict(request)
        return request.num_prompt_tokens

    @hookimpl
    def predict_output_len(self, request: Request) -> float:
        time.sleep(0.002)
        return 1.0


@define(eq=False)
class Failing:
    @hookimpl
    def may_admit(self, request: Request, step: StepView) -> bool:
        raise ValueError("no")


def order(*plugins: object) -> list[str]:
    requests = make_requests(3, prompt_len=[20, 30, 10], max_tokens=1)
    trace = simulate([*STACK, *plugins], requests, SchedulerConfig(max_num_seqs=1))
    return [name for planned in trace.planned for name in planned]


def test_a_stack_of_proxies_decides_what_the_plugins_would() -> None:
    watch, wrapping = Watch(), Wrapping()
    assert order(Shortest(), Wrapping()) == ["r1", "r0", "r2"]
    assert order(proxied(Shortest(), watch), proxied(wrapping, watch)) == ["r1", "r0", "r2"]
    assert wrapping.lengths == [20, 30, 10]


def test_everything_but_the_hooks_is_the_plugins_own() -> None:
    wrapping = Wrapping([7])
    proxy = proxied(wrapping, Watch())
    assert isinstance(proxy, Proxy)
    assert (proxy.name, proxy.lengths, proxy.__wrapped__) == ("wrapping", [7], wrapping)


def test_the_time_of_a_hook_leaves_out_the_hooks_within() -> None:
    watch = Watch(checks=False)
    order(proxied(Shortest(), watch))
    times = watch.times
    assert times["shortest", "predict_output_len"].seconds >= 3 * 0.002
    assert times["shortest", "order_waiting"].calls == 3
    assert times["shortest", "order_waiting"].seconds < 0.002
    assert hook_rows(watch, 3)[0][:3] == ("shortest", "predict_output_len", 3)


def test_a_wrapper_is_timed_before_and_after_its_yield() -> None:
    watch = Watch()
    order("fcfs", proxied(Wrapping(), watch))
    assert watch.times["wrapping", "order_waiting"].calls == 6
    assert watch.times["wrapping", "order_waiting"].seconds >= 3 * 0.002


def test_an_error_names_plugin_and_hook_through_a_proxy() -> None:
    with pytest.raises(PolicyError, match="plugin 'failing', hook 'may_admit'"):
        order(proxied(Failing(), Watch()))
