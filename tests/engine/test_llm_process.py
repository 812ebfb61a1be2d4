"""LLM with its engine in a process of its own: the same answers, and errors that say what is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from framework import ConfigError, HeadwayError, PluginError, RequestError, SamplingParams
from framework.engine.llm import LLM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEN = SamplingParams(max_tokens=10, temperature=0.0)
PROMPTS = ["a", "some more words", "a", [104, 105, 106]]


@pytest.fixture(scope="module")
def llm(model_directory: Path) -> Iterator[LLM]:
    with LLM(model_directory, num_blocks=64, own_process=True) as built:
        yield built


def test_both_ways_give_the_same_answers(llm: LLM, model_directory: Path) -> None:
    with LLM(model_directory, num_blocks=64) as here:
        expected = [
            (one.text, one.token_ids, one.finish_reason) for one in here.generate(PROMPTS, TEN)
        ]
    found = llm.generate(PROMPTS, TEN)
    assert [(one.text, one.token_ids, one.finish_reason) for one in found] == expected


def test_a_stream_gives_the_text_of_generate(llm: LLM) -> None:
    assert "".join(llm.stream("some more words", TEN)) == llm.generate(PROMPTS[1], TEN)[0].text


def test_a_stream_that_is_left_ends_its_request(llm: LLM) -> None:
    next(llm.stream("long", SamplingParams(max_tokens=400, temperature=0.0, ignore_eos=True)))
    assert llm.generate("after", TEN)[0].finish_reason in ("length", "stop")


def test_a_refused_prompt_is_an_error_and_the_next_is_answered(llm: LLM) -> None:
    with pytest.raises(RequestError, match=r"prompt 1: .* allowed: 1 to 511"):
        llm.generate([[1], [1] * 600], TEN)
    assert len(llm.generate([1], TEN)) == 1


def test_a_stack_is_swapped_or_stays(llm: LLM) -> None:
    assert llm.swap(["priority"]) == ["kv_blocks", "chunked_prefill", "priority"]
    with pytest.raises(PluginError, match="priorty"):
        llm.swap(["priorty"])
    assert len(llm.generate(PROMPTS, TEN)) == len(PROMPTS)


def test_the_front_of_another_process_cannot_be_had(llm: LLM) -> None:
    with pytest.raises(HeadwayError, match="process of its own"):
        _ = llm.front


def test_a_wrong_setting_is_told_as_in_this_process(model_directory: Path) -> None:
    with pytest.raises(PluginError, match="no_such_plugin"):
        LLM(model_directory, ["no_such_plugin"], own_process=True)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, model_directory: Path) -> None:
    monkeypatch.delitem(sys.modules, "framework.engine.parent.remote", raising=False)
    monkeypatch.delitem(sys.modules, "framework.engine.client", raising=False)
    monkeypatch.setitem(sys.modules, "framework.engine.protocol", None)
    with pytest.raises(ConfigError, match=r"own_process: needs the package .*headway\[serve\]"):
        LLM(model_directory, own_process=True)
