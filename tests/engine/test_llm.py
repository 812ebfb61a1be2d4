from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from framework import PolicyError, RequestError, SamplingParams, hookimpl
from framework.engine.llm import LLM
from framework.engine.prompts import Prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from framework.engine.models import LoadedModel

FIVE = SamplingParams(max_tokens=5)


@pytest.fixture
def llm(model: Callable[..., LoadedModel]) -> Iterator[LLM]:
    with LLM.from_loaded(model()) as built:
        yield built


def is_empty(llm: LLM) -> bool:
    """Nothing is left anywhere, once those that ended have been handed out."""
    while llm.front.core.has_work:
        llm.front.step()
    kv = llm.front.core.scheduler.kv
    return kv is not None and kv.num_free_blocks == kv.num_total_blocks


def test_one_prompt_or_several_in_any_form(llm: LLM) -> None:
    chat = [{"role": "user", "content": "hi"}]
    for one in ("hi", [104, 105], chat, Prompt(prompt="hi", sampling_params=FIVE)):
        assert [each.text for each in llm.generate(one, FIVE)] == ["abcde"]
    several = llm.generate(["hi", [104, 105], chat], FIVE)
    assert [each.num_prompt_tokens for each in several] == [2, 2, len("user: hi\n")]


def test_each_prompt_may_have_its_own_parameters(llm: LLM) -> None:
    params = [SamplingParams(max_tokens=count) for count in (1, 2)]
    assert [each.text for each in llm.generate(["x", "y"], params)] == ["a", "ab"]
    with pytest.raises(RequestError, match="got 2 for 1 prompts"):
        llm.generate(["x"], params)


def test_no_prompts_give_no_completions(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_a_completion_tells_how_it_went(llm: LLM) -> None:
    (done,) = llm.chat([{"role": "user", "content": "hi"}], FIVE)
    assert (done.finish_reason, done.stop_reason) == ("length", None)
    assert done.token_ids == tuple(b"abcde")
    assert (done.num_preemptions, done.num_cached_tokens, done.logprobs) == (0, 0, None)
    times = done.timings
    assert times.first_token is not None and times.finish is not None
    assert times.arrival <= times.first_token <= times.finish


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stop_string_ends_the_request(model: Callable[..., LoadedModel], is_async: bool) -> None:
    with LLM.from_loaded(model(async_scheduling=is_async)) as llm:
        (done,) = llm.generate("hi", SamplingParams(max_tokens=50, stop=("ef", "zz")))
        assert (done.text, done.finish_reason, done.stop_reason) == ("abcd", "stop", "ef")
        assert done.token_ids == tuple(b"abcdef")
        assert is_empty(llm)


def test_tokens_after_a_stop_string_in_one_step_are_left_out(
    model: Callable[..., LoadedModel],
) -> None:
    drafting = model("ababab", num_spec_tokens=3)
    with LLM.from_loaded(drafting, ["spec_decode"]) as llm:
        (done,) = llm.generate("ababab", SamplingParams(max_tokens=50, stop=("bab",)))
        assert llm.front.core.scheduler.counters.num_drafts_accepted > 0
    assert (done.text, done.token_ids) == ("a", tuple(b"abab"))


def test_a_stop_string_at_the_last_token_is_a_stop(llm: LLM) -> None:
    (done,) = llm.generate("hi", SamplingParams(max_tokens=3, stop=("c",)))
    assert (done.text, done.finish_reason) == ("ab", "stop")


def test_the_end_token_stops_and_has_no_text(model: Callable[..., LoadedModel]) -> None:
    with LLM.from_loaded(model([97, 97, 256])) as llm:
        (done,) = llm.generate("hi", SamplingParams(max_tokens=9))
    assert (done.text, done.finish_reason, done.stop_reason) == ("aa", "stop", None)


def test_streaming_yields_the_whole_text_bit_by_bit(model: Callable[..., LoadedModel]) -> None:
    with LLM.from_loaded(model("né🙂")) as llm:
        pieces = list(llm.stream("hi", SamplingParams(max_tokens=14)))
    assert pieces == ["n", "é", "🙂"] * 2
    assert not any("\ufffd" in piece for piece in pieces)


def test_streaming_holds_a_stop_string_back(llm: LLM) -> None:
    pieces = list(llm.stream("hi", SamplingParams(max_tokens=9, stop=("def",))))
    assert "".join(pieces) == "abc"


def test_leaving_a_stream_aborts_the_request(llm: LLM) -> None:
    stream = llm.stream("hi", SamplingParams(max_tokens=100))
    assert next(stream) == "a"
    stream.close()  # type: ignore[attr-defined]
    assert is_empty(llm)


def test_a_stream_goes_on_beside_other_requests(llm: LLM) -> None:
    stream = llm.stream("hi", SamplingParams(max_tokens=12))
    first = next(stream)
    assert [each.text for each in llm.generate(["x"] * 3, FIVE)] == ["abcde"] * 3
    assert first + "".join(stream) == "abcdefghijab"


def test_preemptions_and_hits_are_told(model: Callable[..., LoadedModel]) -> None:
    with LLM.from_loaded(model(num_blocks=9, max_num_seqs=3)) as llm:
        done = llm.generate(["sixteen letters!"] * 3, SamplingParams(max_tokens=12))
    assert sum(each.num_preemptions for each in done) > 0
    assert [each.num_cached_tokens for each in done] == [0, 12, 12]
    assert {each.text for each in done} == {"abcdefghijab"}


def test_a_refused_prompt_takes_the_others_back(llm: LLM) -> None:
    for bad in ("", "x" * 300):
        with pytest.raises(RequestError, match="prompt 1: "):
            llm.generate(["good", bad], FIVE)
    with pytest.raises(RequestError, match="in use"):
        llm.generate([Prompt(prompt="a", request_id="x"), Prompt(prompt="b", request_id="x")])
    assert is_empty(llm)


def test_stop_strings_and_streams_need_a_tokenizer(model: Callable[..., LoadedModel]) -> None:
    bare = model()
    bare.tokenizer = None
    with LLM.from_loaded(bare) as llm:
        assert llm.generate([1, 2], FIVE)[0].token_ids == tuple(b"abcde")
        with pytest.raises(RequestError, match="stop strings need a tokenizer"):
            llm.generate([1, 2], SamplingParams(stop="x"))
        with pytest.raises(RequestError, match="stream needs a tokenizer"):
            llm.stream([1, 2])


class Tired:
    """Fails once, when it is told of the third step."""

    num_steps = 0

    @hookimpl
    def step_finished(self) -> None:
        self.num_steps += 1
        if self.num_steps == 3:
            raise ValueError("enough")


def test_after_a_failing_policy_the_llm_can_be_used_again(
    model: Callable[..., LoadedModel],
) -> None:
    with LLM.from_loaded(model(), [Tired()]) as llm:
        with pytest.raises(PolicyError, match=r"'tired', hook 'step_finished'.*enough"):
            llm.generate(["a", "b"], FIVE)
        assert not llm.front.has_live
        assert [each.text for each in llm.generate(["a", "b"], FIVE)] == ["abcde"] * 2
        assert is_empty(llm)


class Sheds:
    @hookimpl
    def pick_rejected(self, waiting: object) -> list[object]:
        return [each for each in waiting if each.tenant == "spam"]  # type: ignore[attr-defined]


def test_a_rejected_request_ends_with_its_reason(model: Callable[..., LoadedModel]) -> None:
    prompts = [
        Prompt(prompt="a", tenant="spam", sampling_params=FIVE),
        Prompt(prompt="b", sampling_params=FIVE),
    ]
    with LLM.from_loaded(model(), [Sheds()]) as llm:
        shed, served = llm.generate(prompts)
    assert (shed.finish_reason, shed.token_ids) == ("rejected", ())
    assert shed.error is not None and "pick_rejected" in shed.error
    assert served.text == "abcde"


def test_a_token_that_the_model_does_not_know_is_refused(model: Callable[..., LoadedModel]) -> None:
    loaded = model()
    loaded.runner.vocab_size = 50
    with LLM.from_loaded(loaded) as llm:
        with pytest.raises(RequestError, match="got 50, allowed: below 50"):
            llm.generate([[1, 50]])
        assert llm.generate([[1, 49]])[0].token_ids
