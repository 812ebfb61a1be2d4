from __future__ import annotations

import pytest

from framework.engine.prompts import Prompt
from framework.errors import ConfigError, RequestError
from framework.sampling import SamplingParams
from tests.engine.conftest import ByteTokenizer

PARAMS = SamplingParams(max_tokens=3)


def test_text_messages_and_token_ids_become_prompts() -> None:
    assert Prompt.of("hi", PARAMS, "here").prompt == "hi"
    assert Prompt.of([{"role": "user", "content": "hi"}], PARAMS, "here").messages is not None
    assert Prompt.of([1, 2], PARAMS, "here").prompt_token_ids == (1, 2)


def test_a_prompt_stays_as_it_is() -> None:
    prompt = Prompt(prompt="hi", priority=3)
    assert Prompt.of(prompt, PARAMS, "here") is prompt


def test_each_source_is_encoded(tokenizer: ByteTokenizer) -> None:
    assert Prompt(prompt="hi").encode(tokenizer) == [104, 105]
    assert Prompt(prompt_token_ids=(1, 2)).encode(None) == [1, 2]
    messages = ({"role": "user", "content": "hi"},)
    assert Prompt(messages=messages).encode(tokenizer) == list(b"user: hi\n")


@pytest.mark.parametrize("empty", [{"prompt": ""}, {"prompt_token_ids": ()}, {"messages": ()}])
def test_an_empty_prompt_is_refused(tokenizer: ByteTokenizer, empty: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="file line 3: the prompt is empty"):
        Prompt(**empty, where="file line 3").encode(tokenizer)  # type: ignore[arg-type]


def test_text_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(RequestError, match="needs a tokenizer"):
        Prompt(prompt="hi").encode(None)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompt": 5}, "prompt: got 5"),
        ({"messages": "hi"}, "messages: got 'hi', allowed: a list"),
        ({"messages": [{"role": "user"}]}, "role and content"),
        ({"prompt_token_ids": [1, -1]}, "prompt_token_ids: got -1"),
        ({"prompt": "a", "priority": "high"}, "priority: got 'high'"),
        ({"prompt": "a", "arrival_s": -1}, "arrival_s: got -1"),
        ({"prompt": "a", "arrival_s": float("nan")}, "arrival_s: got nan"),
        ({"prompt": "a", "tenant": 7}, "tenant: got 7"),
        ({"prompt": "a", "request_id": ""}, "id: got ''"),
    ],
)
def test_a_wrong_value_names_its_field(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Prompt(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{}, {"prompt": "a", "prompt_token_ids": [1]}])
def test_exactly_one_source_is_allowed(fields: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="exactly one"):
        Prompt(**fields)  # type: ignore[arg-type]
