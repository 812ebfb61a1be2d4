"""The official client against `headway serve`: the answers of `LLM`, in OpenAI's shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("openai")
pytest.importorskip("uvicorn")
pytest.importorskip("zmq")

import openai

from framework import LLM, SamplingParams
from tests.server.running import running

if TYPE_CHECKING:
    from collections.abc import Iterator

GREEDY = Path(__file__).parents[1] / "data" / "smollm2_greedy.json"
CASES = json.loads(GREEDY.read_text())["cases"]
NUM_TOKENS = 24
WORDS = "some more words"


def connect(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def client(model_directory: Path) -> Iterator[Any]:
    arguments = (model_directory, "--served-model-name", "tiny", "--num-blocks", 64)
    with running(*arguments) as (url, _), connect(url) as made:
        yield made


@pytest.fixture(scope="module")
def offline(model_directory: Path) -> Iterator[LLM]:
    with LLM(model_directory, num_blocks=64) as llm:
        yield llm


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0)


def complete(client: Any, **fields: Any) -> Any:
    given = {"model": "tiny", "prompt": WORDS, "max_tokens": 12, "temperature": 0, **fields}
    return client.completions.create(**given)


def chat(client: Any, **fields: Any) -> Any:
    messages = [{"role": "user", "content": WORDS}]
    given = {"model": "tiny", "messages": messages, "max_tokens": 12, "temperature": 0, **fields}
    return client.chat.completions.create(**given)


def test_a_completion_is_the_text_of_llm(client: Any, offline: LLM) -> None:
    expected = offline.generate(WORDS, greedy(12))[0]
    answer = complete(client)
    assert answer.choices[0].text == expected.text
    assert answer.choices[0].finish_reason == expected.finish_reason
    assert answer.usage.completion_tokens == len(expected.token_ids)


def test_a_chat_is_the_text_of_llm(client: Any, offline: LLM) -> None:
    expected = offline.chat([{"role": "user", "content": WORDS}], greedy(12))[0]
    assert chat(client).choices[0].message.content == expected.text
    assert chat(client).usage.prompt_tokens == expected.num_prompt_tokens


def test_streams_add_up_to_the_same_text(client: Any) -> None:
    pieces = [chunk.choices[0].text for chunk in complete(client, stream=True)]
    assert len(pieces) > 1 and "".join(pieces) == complete(client).choices[0].text
    deltas = [chunk.choices[0].delta.content or "" for chunk in chat(client, stream=True)]
    assert "".join(deltas) == chat(client).choices[0].message.content


def test_a_stream_tells_its_usage(client: Any) -> None:
    *_, last = chat(client, stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage.completion_tokens == 12
    assert last.usage.prompt_tokens == chat(client).usage.prompt_tokens


def test_several_prompts_and_choices(client: Any) -> None:
    answer = complete(client, prompt=[WORDS, "x"], n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    alone = [complete(client, prompt=each).choices[0].text for each in (WORDS, "x")]
    assert [choice.text for choice in answer.choices] == [alone[0], alone[0], alone[1], alone[1]]


def test_a_stop_string_is_left_out(client: Any) -> None:
    text = complete(client, max_tokens=40).choices[0].text
    stop = text[7:9]
    (choice,) = complete(client, max_tokens=40, stop=stop).choices
    assert (choice.text, choice.finish_reason) == (text[: text.index(stop)], "stop")


def test_equal_seeds_give_equal_texts(client: Any) -> None:
    texts = [complete(client, temperature=1, seed=seed).choices[0].text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    both = complete(client, temperature=1, seed=1, n=2).choices
    assert [choice.text for choice in both] == [texts[0], texts[2]]


def test_logprobs_of_a_completion(client: Any) -> None:
    told = complete(client, logprobs=2).choices[0].logprobs
    assert len(told.tokens) == len(told.token_logprobs) == len(told.text_offset) == 12
    assert all(len(top) <= 2 and max(top.values()) <= 0 for top in told.top_logprobs)
    assert told.token_logprobs[0] == max(told.top_logprobs[0].values())  # it is greedy


def test_logprobs_of_a_chat_are_told_in_streams_too(client: Any) -> None:
    whole = chat(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    stream = chat(client, logprobs=True, top_logprobs=2, stream=True)
    told = [chunk.choices[0].logprobs for chunk in stream]
    assert [one for each in told if each for one in each.content] == whole
    assert [len(one.top_logprobs) for one in whole] == [2] * 12
    assert whole[0].logprob == whole[0].top_logprobs[0].logprob


def test_extensions_reach_the_engine(client: Any) -> None:
    extra = {"priority": 3, "deadline_s": 5.0, "top_k": 1, "ignore_eos": True, "min_tokens": 2}
    answer = complete(client, temperature=1, user="ann", extra_body=extra)
    assert answer.choices[0].text == complete(client).choices[0].text


def test_a_repeated_prompt_is_found_in_the_cache(client: Any) -> None:
    prompt = "a prompt of more than one block of sixteen tokens"
    complete(client, prompt=prompt)
    usage = complete(client, prompt=prompt).usage
    assert usage.prompt_tokens_details.cached_tokens == 48


def test_the_model_is_listed(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").max_model_len == 512


def test_errors_are_the_client_s_own(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature: got -1"):
        complete(client, temperature=-1)
    with pytest.raises(openai.NotFoundError, match="'tiny'"):
        complete(client, model="other")
    with pytest.raises(openai.BadRequestError, match="max_model_len 512") as raised:
        complete(client, prompt="x" * 600, stream=True)
    assert raised.value.param == "prompt"


@pytest.fixture
def real_client(real_url: str) -> Iterator[Any]:
    with connect(real_url) as made:
        yield made


@pytest.mark.model
def test_the_real_model_says_what_transformers_says(real_client: Any) -> None:
    from framework.engine.models import resolve_model  # noqa: PLC0415
    from framework.engine.tokenizer import HuggingFaceTokenizer  # noqa: PLC0415

    tokenizer = HuggingFaceTokenizer(resolve_model("smollm2"))
    for case in CASES[:2]:
        messages = [{"role": "user", "content": case["prompt"]}]
        fields = {"model": "smollm2", "messages": messages, "max_tokens": NUM_TOKENS}
        fields |= {"temperature": 0, "extra_body": {"ignore_eos": True}}
        whole = real_client.chat.completions.create(**fields).choices[0].message.content
        stream = real_client.chat.completions.create(**fields, stream=True)
        pieces = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert whole == pieces == tokenizer.decode(case["output_token_ids"][:NUM_TOKENS])


@pytest.mark.model
def test_the_real_model_says_what_llm_says(real_client: Any) -> None:
    prompts = ["The capital of France is", "def fibonacci(n):"]
    with LLM("smollm2", dtype="float32", num_blocks=64) as llm:
        expected = [one.text for one in llm.generate(prompts, greedy(NUM_TOKENS))]
    fields = {"model": "smollm2", "prompt": prompts, "max_tokens": NUM_TOKENS, "temperature": 0}
    answer = real_client.completions.create(**fields)
    assert [choice.text for choice in answer.choices] == expected
