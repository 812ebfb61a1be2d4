from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from framework import RequestError, SamplingParams
from framework.engine.front import Front
from framework.engine.playback import Playback, check_prompts, same_outputs, warm_up
from framework.engine.prompts import Prompt

if TYPE_CHECKING:
    from collections.abc import Callable

    from framework.engine.models import LoadedModel
    from framework.engine.playback import Outcome

STACK = ("kv_blocks", "chunked_prefill", "fcfs")
PARAMS = SamplingParams(max_tokens=4)
PROMPTS = [
    Prompt(prompt="late", request_id="late", arrival_s=0.05, sampling_params=PARAMS, priority=1),
    Prompt(prompt="early", request_id="early", sampling_params=PARAMS),
]


def play(model: LoadedModel, prompts: list[Prompt] = PROMPTS) -> Outcome:
    with Front(model, STACK) as front:
        playback = Playback("fcfs", front, prompts)
        ended: list[int] = []
        playback.run(ended.append)
        assert sum(ended) == len(prompts)
        front.drain()
        return playback.outcome()


def test_prompts_arrive_at_their_time(model: Callable[..., LoadedModel]) -> None:
    outcome = play(model())
    assert outcome.is_complete
    early, late = outcome.completions
    assert (early.request_id, late.request_id) == ("early", "late")
    assert late.timings.arrival - early.timings.arrival == pytest.approx(0.05)
    assert late.timings.queueing_s is not None and late.timings.queueing_s >= 0


def test_waits_are_told_by_priority(model: Callable[..., LoadedModel]) -> None:
    waits = play(model()).ttft_by_priority()
    assert list(waits) == [0, 1]
    assert [each.count for each in waits.values()] == [1, 1]


def test_one_model_serves_one_run_after_another(model: Callable[..., LoadedModel]) -> None:
    loaded = model()
    warm_up(loaded, STACK, PROMPTS[0])
    outcomes = [play(loaded), play(loaded)]
    assert outcomes[0].summary.num_cached_tokens == outcomes[1].summary.num_cached_tokens == 0
    assert same_outputs(outcomes) is True


def test_outputs_of_one_run_are_not_compared(model: Callable[..., LoadedModel]) -> None:
    assert same_outputs([play(model())]) is None


def test_different_outputs_are_told(model: Callable[..., LoadedModel]) -> None:
    assert same_outputs([play(model("abc")), play(model("abd"))]) is False


def test_a_prompt_that_never_fits_is_found_beforehand(model: Callable[..., LoadedModel]) -> None:
    big = Prompt(prompt="x" * 60, sampling_params=PARAMS, where="file line 7")
    with pytest.raises(RequestError, match=r"file line 7: .*can never fit"):
        check_prompts(model(num_blocks=4), STACK, [*PROMPTS, big])
