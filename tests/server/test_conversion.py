"""What a call means for the engine: sampling, names, tenants, seeds, deadlines."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")

from framework.errors import ConfigError
from framework.server.convert import Asked, from_chat, from_completion
from framework.server.schema import ChatRequest, CompletionRequest

MESSAGES = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": None}]


def asked(**fields: Any) -> Asked:
    return from_completion(CompletionRequest(prompt="x", **fields), "name", None)


def test_fields_become_sampling_parameters() -> None:
    given = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "stop": "end", "seed": 3}
    given |= {"presence_penalty": 1.0, "frequency_penalty": -1.0, "repetition_penalty": 1.5}
    given |= {"min_tokens": 2, "ignore_eos": True, "stop_token_ids": [4], "max_tokens": 9}
    params = asked(**given).prompts[0].sampling_params
    expected = {**given, "stop": ("end",), "stop_token_ids": (4,)}
    assert {name: getattr(params, name) for name in given} == expected


def test_without_fields_sampling_is_openai_s() -> None:
    params = asked().prompts[0].sampling_params
    assert (params.temperature, params.top_p, params.max_tokens) == (1.0, 1.0, 16)
    assert (params.seed, params.logprobs) == (None, None)


def test_a_top_k_of_minus_one_means_all() -> None:
    assert asked(top_k=-1).prompts[0].sampling_params.top_k == 0


def test_choices_have_names_and_seeds_of_their_own() -> None:
    prompts = asked(n=3, seed=10).prompts
    assert [prompt.request_id for prompt in prompts] == ["name-0", "name-1", "name-2"]
    assert [prompt.sampling_params.seed for prompt in prompts] == [10, 11, 12]


def test_a_lone_choice_has_the_name_of_the_call() -> None:
    assert asked(seed=10).prompts[0].request_id == "name"


def test_tenant_priority_and_deadline_go_with_the_prompt() -> None:
    (prompt,) = asked(user="ann", priority=-2, deadline_s=1.5).prompts
    assert (prompt.tenant, prompt.priority, prompt.deadline_s) == ("ann", -2, 1.5)


def test_an_empty_user_is_none() -> None:
    assert asked(user="").prompts[0].tenant is None


def test_messages_are_plain_for_the_template() -> None:
    (prompt,) = from_chat(ChatRequest(messages=MESSAGES), "name").prompts
    assert prompt.messages == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": ""},
    )


def test_logprobs_of_a_chat_are_those_of_the_likeliest() -> None:
    plain = from_chat(ChatRequest(messages=MESSAGES, logprobs=True), "name").prompts[0]
    three = from_chat(ChatRequest(messages=MESSAGES, logprobs=True, top_logprobs=3), "name")
    assert plain.sampling_params.logprobs == 0
    assert three.prompts[0].sampling_params.logprobs == 3


def test_the_newer_name_of_max_tokens_wins() -> None:
    body = ChatRequest(messages=MESSAGES, max_tokens=5, max_completion_tokens=7)
    assert from_chat(body, "name").prompts[0].sampling_params.max_tokens == 7


def test_a_value_out_of_range_is_named() -> None:
    with pytest.raises(ConfigError, match=r"top_p: got 2\.0, allowed: a number in \(0, 1\]"):
        asked(top_p=2.0)
