"""Sampling: what may be drawn, how often, and that neither drafts nor batching change it."""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from framework import SamplingParams  # noqa: E402
from runners.common.sampling import sample  # noqa: E402
from runners.common.state import RequestState, ScheduledRow  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

LOGITS = [2.0, 1.5, 0.5, 0.0, -0.5, -1.0, 1.0, -30.0]
NUM_DRAWS = 3000
# Of a chi-square with 7 degrees of freedom, exceeded once in 10,000 times; the draws are seeded.
CRITICAL = 29.9


def row(
    seed: int = 0, drafts: Sequence[int] = (), known: Sequence[int] = (1, 2), **params: Any
) -> ScheduledRow:
    """A request with a prompt of one token that samples after `known`."""
    options = SamplingParams(**params)
    state = RequestState(f"r{seed}", list(known), 1, [1], options, len(known) - 1, seed, (3,))
    return ScheduledRow(state, [known[-1], *drafts], len(known) - 1, len(drafts), True)


def draw(rows: list[ScheduledRow], *logits: list[float]) -> list[list[int]]:
    """Each row gets the same logits, one list a position."""
    return sample(rows, torch.tensor(list(logits) * len(rows)))[0]


def softmax(logits: list[float]) -> list[float]:
    total = sum(map(exp, logits))
    return [exp(value) / total for value in logits]


def chi_square(tokens: list[int], probabilities: list[float]) -> float:
    return sum(
        (tokens.count(token) - len(tokens) * chance) ** 2 / (len(tokens) * chance)
        for token, chance in enumerate(probabilities)
        if chance > 0
    )


def allowed(logits: list[float], top_k: int, top_p: float, min_p: float) -> set[int]:
    """By the definitions, one token after another."""
    order = sorted(range(len(logits)), key=lambda token: -logits[token])[: top_k or None]
    chances = dict(zip(order, softmax([logits[token] for token in order]), strict=True))
    kept, mass = [], 0.0
    for token in order:
        if mass >= top_p:
            break
        kept.append(token)
        mass += chances[token]
    return {token for token in kept if chances[token] >= min_p * chances[order[0]]}


def test_greedy_takes_the_likeliest() -> None:
    assert draw([row(temperature=0)], LOGITS) == [[0]]


@pytest.mark.parametrize(
    ("drafts", "expected"),
    [([5, 6], [5, 6, 7]), ([5, 0], [5, 6]), ([0, 6], [5]), ([5, 0, 7], [5, 6])],
)
def test_greedy_keeps_drafts_up_to_the_first_wrong_one(
    drafts: list[int], expected: list[int]
) -> None:
    logits = [[float(token == 5 + position) for token in range(9)] for position in range(3)]
    logits.append([0.0] * 9)
    assert draw([row(drafts=drafts, temperature=0)], *logits[: len(drafts) + 1]) == [expected]


def test_a_chunk_samples_nothing_and_rows_keep_their_order() -> None:
    chunk = row(temperature=0)
    chunk.samples = False
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    rows = [row(temperature=0), chunk, row(temperature=0)]
    assert sample(rows, logits)[0] == [[1], [], [0]]
    assert sample([chunk], torch.empty(0, 2)) == ([[]], {})


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_the_distribution(temperature: float) -> None:
    rows = [row(seed, temperature=temperature) for seed in range(NUM_DRAWS)]
    drawn = [tokens[0] for tokens in draw(rows, LOGITS)]
    expected = softmax([value / temperature for value in LOGITS])
    assert chi_square(drawn, expected[:7]) < CRITICAL


@pytest.mark.parametrize("draft", [0, 3, 7])
def test_with_a_draft_the_distribution_is_the_same(draft: int) -> None:
    rows = [row(seed, [draft], temperature=1.0) for seed in range(NUM_DRAWS)]
    drawn = draw(rows, LOGITS, LOGITS[::-1])
    assert chi_square([tokens[0] for tokens in drawn], softmax(LOGITS)[:7]) < CRITICAL


def test_a_draft_is_kept_with_its_probability_and_followed_by_the_next_distribution() -> None:
    rows = [row(seed, [0], temperature=1.0) for seed in range(NUM_DRAWS)]
    drawn = draw(rows, LOGITS, LOGITS[::-1])
    kept = [tokens[1] for tokens in drawn if len(tokens) == 2]
    chance = softmax(LOGITS)[0]
    assert all(tokens[0] == 0 for tokens in drawn if len(tokens) == 2)
    assert chi_square([0] * len(kept) + [1] * (NUM_DRAWS - len(kept)), [chance, 1 - chance]) < 16
    assert chi_square(kept, [0.0, *softmax(LOGITS)[::-1][1:]]) < CRITICAL


def test_a_seed_gives_the_same_tokens_with_and_without_drafts() -> None:
    for seed in range(200):
        first = draw([row(seed, temperature=1.0)], LOGITS)[0]
        second = draw([row(seed, known=[1, 2, *first], temperature=1.0)], LOGITS)[0]
        for draft in range(8):
            tokens = draw([row(seed, [draft], temperature=1.0)], LOGITS, LOGITS)[0]
            assert tokens == (first + second if [draft] == first else first)


def test_a_seed_gives_the_same_token_in_any_batch() -> None:
    rows = [row(seed, temperature=1.0 + seed % 3) for seed in range(20)]
    together = draw(rows, LOGITS)
    assert together == draw(rows[::-1], LOGITS)[::-1]
    assert together == [draw([item], LOGITS)[0] for item in rows]


def test_seeds_beyond_64_bits_are_taken() -> None:
    assert draw([row(2**70 + 5, temperature=1.0)], LOGITS) == draw([row(5)], LOGITS)


@pytest.mark.parametrize("top_k", [0, 1, 3, 100])
@pytest.mark.parametrize(("top_p", "min_p"), [(1.0, 0.0), (0.5, 0.0), (0.9, 0.2), (1.0, 0.5)])
def test_filters_leave_what_their_definitions_say(top_k: int, top_p: float, min_p: float) -> None:
    rows = [row(seed, top_k=top_k, top_p=top_p, min_p=min_p) for seed in range(1000)]
    expected = allowed(LOGITS[:7], top_k, top_p, min_p)
    assert {tokens[0] for tokens in draw(rows, LOGITS[:7])} == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"top_k": 1}, {1}),
        ({"top_k": 2}, {0, 1, 3, 4}),  # three tokens are the second likeliest
        ({"top_k": 4}, {0, 1, 3, 4}),
        ({"top_k": 5}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.4}, {1}),
        ({"top_p": 0.47}, {0, 1, 3, 4}),
        ({"top_p": 0.9}, {0, 1, 3, 4}),
        ({"top_k": 2, "top_p": 0.999}, {0, 1, 3, 4}),
        ({"top_k": 2, "top_p": 0.47}, {1}),  # of what top-k left, token 1 has 0.475
        ({"min_p": 1.0}, {1}),
    ],
)
def test_ties_at_a_threshold_are_all_kept(params: dict[str, float], expected: set[int]) -> None:
    logits = [1.0, 2.0, -0.5, 1.0, 1.0]  # probabilities 0.168, 0.458, 0.038, 0.168, 0.168
    rows = [row(seed, **params) for seed in range(500)]
    assert {tokens[0] for tokens in draw(rows, logits)} == expected


def test_equally_likely_tokens_are_all_kept_by_every_filter() -> None:
    rows = [row(seed, top_k=1, top_p=0.01, min_p=1.0) for seed in range(500)]
    assert {tokens[0] for tokens in draw(rows, [0.0, 3.0, 3.0, 3.0])} == {1, 2, 3}


@pytest.mark.parametrize("params", [{}, {"top_k": 4}, {"top_p": 0.99}, {"min_p": 0.01}])
def test_tokens_of_no_probability_are_never_drawn(params: dict[str, float]) -> None:
    logits = [-float("inf"), 1.0, -float("inf"), 0.5, -float("inf")]
    rows = [row(seed, **params) for seed in range(500)]
    assert {tokens[0] for tokens in draw(rows, logits)} == {1, 3}


@pytest.mark.parametrize("temperature", [1e-60, 1e-40, 1e-6])
def test_next_to_no_temperature_takes_the_likeliest(temperature: float) -> None:
    rows = [row(seed, temperature=temperature, min_p=0.1) for seed in range(20)]
    assert draw(rows, [1.0, 1.5, 1.4]) == [[1]] * 20


def test_filters_are_each_requests_own() -> None:
    rows = [row(seed, top_k=1 if seed % 2 else 0, temperature=9.0) for seed in range(200)]
    drawn = [tokens[0] for tokens in draw(rows, LOGITS)]
    assert set(drawn[1::2]) == {0}
    assert len(set(drawn[::2])) > 3


@pytest.mark.parametrize(
    ("known", "params", "expected"),
    [
        ([0, 1], {"repetition_penalty": 4.0}, 2),  # prompt token 0 and output token 1 count
        ([0, 1], {"presence_penalty": 2.0}, 0),  # of the prompt nothing counts
        ([9, 0], {"presence_penalty": 0.4}, 0),
        ([9, 0], {"presence_penalty": 0.6}, 1),
        ([9, 0, 0], {"frequency_penalty": 0.2}, 0),
        ([9, 0, 0], {"frequency_penalty": 0.3}, 1),
        ([9, 0], {"presence_penalty": -1.0}, 0),
    ],
)
def test_penalties(known: list[int], params: dict[str, float], expected: int) -> None:
    logits = [2.0, 1.5, 1.0, *[-5.0] * 7]
    assert draw([row(known=known, temperature=0, **params)], logits) == [[expected]]


def test_a_repeated_token_with_a_negative_logit_gets_less_likely_too() -> None:
    logits = [-1.0, -1.5, -9.0]
    params = {"temperature": 0, "repetition_penalty": 2.0}
    assert draw([row(known=[0, 0], **params)], logits) == [[1]]


def test_assumed_drafts_count_as_outputs() -> None:
    logits = [2.0, 1.5, -9.0]
    drawn = draw([row(drafts=[0], temperature=0, presence_penalty=1.0)], logits, logits)
    assert drawn == [[0, 1]]


@pytest.mark.parametrize(("min_tokens", "expected"), [(1, 3), (2, 0)])
def test_stop_tokens_wait_for_the_minimum_length(min_tokens: int, expected: int) -> None:
    logits = [1.0, 0.0, 0.0, 2.0]
    assert draw([row(temperature=0, min_tokens=min_tokens)], logits) == [[expected]]


def test_stop_tokens_beyond_the_vocabulary_do_no_harm() -> None:
    assert draw([row(temperature=0, min_tokens=2)], [1.0, 0.0, 2.0]) == [[2]]


def test_logprobs_are_the_models_own() -> None:
    logits = torch.tensor([LOGITS, LOGITS[::-1], LOGITS])
    rows = [row(1, [0], temperature=0, logprobs=2), row(2, temperature=0)]
    tokens, logprobs = sample(rows, logits)
    assert tokens == [[0, 7], [0]]
    assert list(logprobs) == ["r1"]
    for found, chances in zip(
        logprobs["r1"], [softmax(LOGITS), softmax(LOGITS[::-1])], strict=True
    ):
        assert found.rank == 1
        assert found.logprob == pytest.approx(log(max(chances)), abs=1e-5)
        best = sorted(range(8), key=lambda token: -chances[token])[:2]
        assert found.top == pytest.approx({token: log(chances[token]) for token in best}, abs=1e-5)


def test_the_rank_of_an_unlikely_token_is_told() -> None:
    for seed in range(50):
        item = row(seed, temperature=5.0, logprobs=0)
        tokens, logprobs = sample([item], torch.tensor([LOGITS]))
        order = sorted(range(8), key=lambda token: -LOGITS[token])
        found = logprobs[item.state.request_id][0]
        assert (found.rank, found.top) == (order.index(tokens[0][0]) + 1, {})
