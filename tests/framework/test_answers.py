"""An answer that the core cannot use is an error that says who, what, for whom, and what may be."""

from __future__ import annotations

from typing import Any

import pytest

from framework import (
    ConfigError,
    PolicyError,
    Request,
    RunnerOutput,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    hookimpl,
)

STRANGER = Request("stranger", [1], SamplingParams(max_tokens=1))


class SelectWaiting:
    """Someone who does not wait."""

    hook = "select_waiting"

    @hookimpl
    def select_waiting(self) -> Request:
        return STRANGER


class OrderRunning:
    """The same request twice."""

    hook = "order_running"

    @hookimpl
    def order_running(self, running: Any) -> Any:
        return [*running, *running] or None


class PickRejected:
    """Someone who does not wait."""

    hook = "pick_rejected"

    @hookimpl
    def pick_rejected(self) -> list[Request]:
        return [STRANGER]


class ComputeNumNewTokens:
    """Less than nothing."""

    hook = "compute_num_new_tokens"

    @hookimpl
    def compute_num_new_tokens(self) -> int:
        return -1


class Padding:
    """More than there is, for a running request too."""

    hook = "compute_num_new_tokens"

    @hookimpl
    def compute_num_new_tokens(self) -> int:
        return 99


class CapNumNewTokens:
    """Not a whole number."""

    hook = "cap_num_new_tokens"

    @hookimpl
    def cap_num_new_tokens(self) -> Any:
        return 2.5


class SplitPrefill:
    """Less than nothing, where the budget does not hold the prompt."""

    hook = "split_prefill"

    @hookimpl
    def split_prefill(self) -> int:
        return -4


class PickPreemptVictim:
    """Someone who does not run."""

    hook = "pick_preempt_victim"

    @hookimpl
    def pick_preempt_victim(self) -> Request:
        return STRANGER


LIARS = [
    SelectWaiting,
    OrderRunning,
    PickRejected,
    ComputeNumNewTokens,
    Padding,
    CapNumNewTokens,
    SplitPrefill,
    PickPreemptVictim,
]


@pytest.mark.parametrize("liar", LIARS, ids=[liar.__name__ for liar in LIARS])
def test_a_wrong_answer_names_plugin_and_hook_and_leaves_the_books_whole(liar: Any) -> None:
    config = SchedulerConfig(max_num_batched_tokens=8, block_size=2, num_blocks=10, max_num_seqs=2)
    scheduler = Scheduler(config, ["kv_blocks", "chunked_prefill", "fcfs", liar()])
    for name, length in (("a", 9), ("b", 6)):
        params = SamplingParams(max_tokens=7)
        scheduler.add_request(Request(name, [1] * length, params))
    with pytest.raises(PolicyError, match="allowed: ") as caught:
        for _ in range(40):
            plan = scheduler.schedule()
            chunks = [scheduler.requests[name] for name in plan.num_scheduled_tokens]
            sampled = [[] if request.is_prefill_chunk else [2] for request in chunks]
            scheduler.update_from_output(plan, RunnerOutput(sampled))
    assert caught.value.hook == liar.hook
    assert caught.value.plugin in str(caught.value)
    scheduler.kv.check_integrity()  # type: ignore[union-attr]
    for name in list(scheduler.requests):
        scheduler.abort(name)
    assert scheduler.kv is not None
    assert scheduler.kv.num_free_blocks == scheduler.kv.num_total_blocks


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_num_batched_tokens", 0), ("max_num_seqs", -1), ("block_size", 0), ("num_blocks", 1)],
)
def test_a_limit_out_of_range_is_named_with_what_is_allowed(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=rf"{field}: got {value}, allowed: an int of at least"):
        SchedulerConfig(**{field: value})


def test_an_unknown_limit_is_refused_with_close_names() -> None:
    with pytest.raises(ConfigError, match=r"max_num_seq: no such field.*'max_num_seqs'"):
        SchedulerConfig.from_mapping({"max_num_seq": 3})
