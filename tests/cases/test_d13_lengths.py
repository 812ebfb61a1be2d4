"""The edges of lengths: empty, one token, a whole block, the longest, one too long."""

from __future__ import annotations

import pytest

from framework import ConfigError, RequestError, SamplingParams
from tests.support import Bench, bench, next_token, prompt


def free_blocks(b: Bench) -> int:
    assert b.scheduler.kv is not None
    return b.scheduler.kv.num_free_blocks


def test_an_empty_prompt_is_refused_and_the_next_request_served() -> None:
    b = bench()
    with pytest.raises(RequestError, match=r"request 'x': prompt has 0 tokens, allowed: 1 to"):
        b.add("x", [], 4)
    b.add("y", 9, 2)
    b.finish()
    assert b.ends == [("y", "length")]


def test_no_output_at_all_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"max_tokens: got 0, allowed: an int of at least 1"):
        SamplingParams(max_tokens=0)


def test_one_output_token_needs_no_decode_step() -> None:
    b = bench(blocks=10)
    b.add("x", 9, 1)
    assert b.step() == {"x": 9}
    assert b.ends == [("x", "length")]
    assert free_blocks(b) == 10
    b.finish()
    assert [output.num_scheduled_tokens for output in b.outputs] == [{"x": 9}, {}]


@pytest.mark.parametrize("max_tokens", [1, 4, None])
def test_the_longest_prompt_gives_exactly_one_token(max_tokens: int | None) -> None:
    b = bench(max_model_len=16)
    request = b.add("x", 15, max_tokens)
    b.step()
    assert request.num_output_tokens == 1
    assert b.ends == [("x", "length")]
    b.finish()


@pytest.mark.parametrize("length", [16, 17])
def test_a_longer_prompt_is_refused_and_never_waits(length: int) -> None:
    b = bench(max_model_len=16)
    with pytest.raises(RequestError, match=rf"prompt has {length} tokens, allowed: 1 to 15"):
        b.add("x", length, 1)
    assert not b.scheduler.has_requests()


def test_output_ends_at_the_length_of_the_model() -> None:
    b = bench(max_model_len=16)
    request = b.add("x", 10, 100)
    b.finish()
    assert request.num_tokens == 16
    assert b.ends == [("x", "length")]


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8])
def test_short_prompts_and_whole_blocks_are_served(length: int) -> None:
    b = bench(blocks=4)
    request = b.add("x", length, 5)
    b.finish()
    assert request.num_output_tokens == 5


def test_a_stop_token_as_the_very_first_output_ends_at_once() -> None:
    b = bench(blocks=10)
    stop = next_token(prompt(9), 0)
    request = b.add("x", prompt(9), 5, params={"stop_token_ids": [stop]})
    b.step()
    assert request.output_token_ids == [stop]
    assert b.ends == [("x", "stop")]
    assert b.results[-1].stop_reasons == {"x": stop}
    assert free_blocks(b) == 10
    b.finish()


def test_a_stop_token_in_the_prompt_ends_nothing() -> None:
    b = bench()
    request = b.add("x", prompt(9), 3, params={"stop_token_ids": [1, 9]})
    b.finish()
    assert request.num_output_tokens == 3


def test_a_stop_token_at_the_last_allowed_place_counts_as_a_stop() -> None:
    b = bench()
    b.add("x", prompt(9), 2, params={"stop_token_ids": [next_token(prompt(9), 1)]})
    b.finish()
    assert b.ends == [("x", "stop")]


def test_a_stop_token_counts_only_after_the_least_number_of_tokens() -> None:
    b = bench()
    stops = [next_token(prompt(9), position) for position in (0, 1, 3)]
    params = {"stop_token_ids": stops, "min_tokens": 3}
    request = b.add("x", prompt(9), 9, params=params)
    b.finish()
    assert request.num_output_tokens == 4
    assert b.ends == [("x", "stop")]
