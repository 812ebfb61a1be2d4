"""The runner's sampler against the torch side, on the same logits: what they draw and tell."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from attrs import define, evolve, field
from planning import newest, plan, state

from framework import SamplingParams, SchedulerConfig
from runners.common.batch import flatten
from runners.common.grammar import obey
from runners.common.sampling import rows_of, sample
from runners.common.state import RequestState, ScheduledRow
from runners.triton.feed import Feed
from runners.triton.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework import TokenLogprobs
    from framework.output import SchedulerOutput

VOCABULARY = 97
MOST_DRAFTS = 3
CONFIG = SchedulerConfig(
    max_num_seqs=6, max_model_len=64, block_size=4, num_blocks=99, num_spec_tokens=MOST_DRAFTS
)
PENALISED = {"repetition_penalty": 1.7, "presence_penalty": -0.5, "frequency_penalty": 0.8}


def known(name: str, tokens: Sequence[int], **given: Any) -> RequestState:
    """A request with blocks enough."""
    return state(name, tokens, range(1, 17), **given)


@define(eq=False)
class Sides:
    """Both samplers, the device's with what it remembers from step to step."""

    device: str
    config: SchedulerConfig = CONFIG
    feed: Feed = field(init=False)
    sampler: Sampler = field(init=False)
    noise: torch.Generator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.feed = Feed(self.config, torch.device(self.device))
        self.sampler = Sampler(self.config, torch.device(self.device))
        self.noise = torch.Generator().manual_seed(11)

    def logits(self, rows: Sequence[ScheduledRow]) -> torch.Tensor:
        """Noise for each position."""
        return 3 * torch.randn(len(rows_of(rows)), VOCABULARY, generator=self.noise)

    def by_kernels(
        self, rows: list[ScheduledRow], logits: torch.Tensor, output: SchedulerOutput
    ) -> tuple[list[list[int]], dict[str, list[TokenLogprobs]]]:
        """What the device draws and tells; in async mode it keeps the newest tokens."""
        table_rows = self.feed.rows_of(rows)
        fields = self.sampler.fields(output, rows, table_rows)
        step = self.feed.send(flatten(rows, self.config.block_size), table_rows, fields)
        given = logits.clone().to(self.device)
        drawn = self.sampler.draw(output, rows, given, step, self.feed.last_tokens)
        self.feed.keep_last(step, drawn.tokens[:, 0])
        return drawn.to_host()

    def compare(
        self, rows: list[ScheduledRow], output: SchedulerOutput | None = None
    ) -> list[list[int]]:
        """One step by both; the tokens, if they agree."""
        output = plan() if output is None else output
        logits = self.logits(rows)
        tokens, logprobs = self.by_kernels(rows, logits, output)
        grammar = partial(obey, output=output, rows=rows)
        expected, told = sample(rows, logits.clone(), adjust=grammar)
        assert tokens == expected
        assert_told(logprobs, told)
        return tokens


def assert_told(
    found: dict[str, list[TokenLogprobs]], expected: dict[str, list[TokenLogprobs]]
) -> None:
    """The same requests, tokens and ranks, and nearly the same log-probabilities."""
    assert found.keys() == expected.keys()
    for name, entries in expected.items():
        assert len(found[name]) == len(entries)
        for got, wanted in zip(found[name], entries, strict=True):
            assert (got.rank, list(got.top)) == (wanted.rank, list(wanted.top))
            assert got.logprob == pytest.approx(wanted.logprob, abs=1e-4)
            assert got.top == pytest.approx(wanted.top, abs=1e-4)


def any_params(draw: random.Random) -> SamplingParams:
    """Each filter, penalty and wish in some of them."""

    def maybe(value: Any, otherwise: Any) -> Any:
        return value if draw.random() < 0.5 else otherwise

    return SamplingParams(
        temperature=draw.choice([0, 0.3, 1.0, 2.5]),
        top_k=maybe(draw.choice([1, 5, 40, 500]), 0),
        top_p=maybe(draw.choice([0.1, 0.7, 0.95]), 1.0),
        min_p=maybe(draw.choice([0.02, 0.3]), 0.0),
        repetition_penalty=maybe(draw.choice([0.6, 1.3]), 1.0),
        presence_penalty=maybe(draw.uniform(-2, 2), 0.0),
        frequency_penalty=maybe(draw.uniform(-2, 2), 0.0),
        min_tokens=maybe(draw.randrange(12), 0),
        logprobs=maybe(draw.choice([0, 1, 4]), None),
    )


def any_request(draw: random.Random, name: str) -> RequestState:
    """Prompt and output repeat tokens, so that penalties bite."""
    size = draw.randint(2, 20)
    tokens = [draw.randrange(0, VOCABULARY, 5) for _ in range(size)]
    stops = tuple(draw.sample(range(VOCABULARY), draw.choice([0, 1, 30])))
    return known(
        name,
        tokens,
        num_prompt=draw.randint(1, size),
        params=any_params(draw),
        stops=stops,
        seed=draw.getrandbits(64),
    )


@pytest.mark.parametrize("seed", range(3))
def test_any_mix_of_requests_gives_the_same_tokens(seed: int, device: str) -> None:
    """Step after step, with drafts of which some are right, chunks, and requests that change."""
    draw, sides = random.Random(seed), Sides(device)
    requests = [any_request(draw, f"r{index}") for index in range(6)]
    num_positions = 0
    for step in range(3):
        rows = []
        for request in draw.sample(requests, 5):
            drafts = [draw.randrange(0, VOCABULARY, 5) for _ in range(draw.randint(0, MOST_DRAFTS))]
            rows.append(newest(request, drafts))
        rows[2] = ScheduledRow(rows[2].state, rows[2].tokens[:1], 0, 0, False)
        num_positions += len(rows_of(rows))
        for row, tokens in zip(rows, sides.compare(rows), strict=True):
            row.state.token_ids += tokens
        gone = requests[step]
        sides.feed.forget(plan(finished_req_ids=[gone.request_id]))
        requests[step] = any_request(draw, gone.request_id)
    assert num_positions > 21


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_drafts_are_kept_up_to_the_first_wrong_one(temperature: float, device: str) -> None:
    sides = Sides(device)
    params = SamplingParams(temperature=temperature, logprobs=2, **PENALISED)
    requests = [known(f"r{index}", [5, 9, 5], params=params, seed=index) for index in range(4)]
    noise = sides.noise.get_state()
    rows = [newest(request, [0, 0, 0]) for request in requests]
    for position in range(3):  # in turn, the draft is what is drawn there
        sides.noise.set_state(noise)
        for row, tokens in zip(rows, sides.compare(rows), strict=True):
            row.tokens[1 + position] = tokens[position]
    for index, row in enumerate(rows[:3]):
        row.tokens[1 + index] = (row.tokens[1 + index] + 1) % VOCABULARY
    sides.noise.set_state(noise)
    assert [len(tokens) for tokens in sides.compare(rows)] == [1, 2, 3, 4]


def test_penalties_know_the_newest_token_before_the_host_does(device: str) -> None:
    """Meanwhile rows of the device change hands, and a request comes back with another list."""
    sides = Sides(device, evolve(CONFIG, num_spec_tokens=0))
    params = SamplingParams(temperature=0, **PENALISED)
    requests = [known(f"r{index}", [5, 9, 5], params=params) for index in range(3)]
    unknown: list[RequestState] = []
    for step in range(7):
        if step == 3:
            requests[1].token_ids = [5, 9, 5, *[(requests[1].token_ids[3] + 1) % 3] * 3]
            requests = [requests[1], known("r0", [7, 7], params=params), requests[2]]
            unknown = [requests[2]]
            sides.feed.forget(plan(finished_req_ids=["r0"], preempted_req_ids=["r1"]))
        logits = sides.logits([newest(request) for request in requests]) / 10
        logits[:, :3] += 9  # which of these is drawn, penalties alone decide
        last = [request.token_ids[-1] for request in requests]
        for request in unknown:
            request.token_ids[-1] = -1
        tokens, _ = sides.by_kernels([newest(request) for request in requests], logits, plan())
        for request, token in zip(requests, last, strict=True):
            request.token_ids[-1] = token
        expected, _ = sample([newest(request) for request in requests], logits.clone())
        assert tokens == expected
        for request, found in zip(requests, tokens, strict=True):
            request.token_ids += found
        unknown = list(requests)
    assert all(len(set(request.token_ids[-4:])) > 1 for request in requests)


def test_a_grammar_holds_for_drafts_too_and_not_for_logprobs(device: str) -> None:
    sides = Sides(device)
    params = SamplingParams(temperature=1.0, logprobs=3)
    rows = [
        newest(known("free", [1], params=params)),
        newest(known("bound", [1], params=params), [40, 3]),
        newest(known("other", [1], params=params)),
    ]
    words = torch.zeros(5, 4, dtype=torch.int32)
    for row, allowed in enumerate([(1, 96), (40,), (31, 63), (64,), (95,)]):
        for token in allowed:
            bit = torch.tensor(1 << token % 32).to(torch.int32)
            words[row, token // 32] |= bit
    output = plan(grammar_bitmask=words, structured_output_request_ids={"bound": 1, "other": 4})
    free, bound, other = sides.compare(rows, output)
    assert len(free) == 1
    assert bound[0] == 40
    assert bound[1] in (31, 63)
    assert other == [95]
    output.grammar_bitmask = words.numpy()
    assert sides.compare(rows, output)[2] == [95]


def test_stop_tokens_wait_and_those_beyond_the_vocabulary_do_no_harm(device: str) -> None:
    sides = Sides(device)
    params = SamplingParams(temperature=0, min_tokens=2)
    stops = (3, VOCABULARY, VOCABULARY + 1, 2**31, 2**40)
    request = known("a", [1, 2], num_prompt=1, params=params, stops=stops)
    rows = [newest(request, [4]), newest(known("b", [1], params=params, stops=stops))]
    logits = torch.zeros(3, VOCABULARY)
    logits[:, 3], logits[:, 4] = 2, 1
    # the second position of the first request has its two tokens behind it
    assert sides.by_kernels(rows, logits, plan())[0] == [[4, 3], [4]]
    assert sample(rows, logits.clone())[0] == [[4, 3], [4]]


def test_more_logprobs_than_tokens_give_them_all(device: str) -> None:
    sides = Sides(device)
    row = newest(known("a", [1], params=SamplingParams(temperature=0, logprobs=1000)))
    logits = sides.logits([row])
    _, told = sides.by_kernels([row], logits, plan())
    assert_told(told, sample([row], logits.clone())[1])
    assert len(told["a"][0].top) == VOCABULARY


def test_a_step_in_which_nobody_samples_gives_nothing(device: str) -> None:
    params = SamplingParams(logprobs=1, min_tokens=5, **PENALISED)
    requests = [known(f"r{index}", [1, 2, 3], params=params, stops=(3,)) for index in range(2)]
    rows = [ScheduledRow(request, [1], 0, 0, False) for request in requests]
    assert Sides(device).by_kernels(rows, torch.empty(0, VOCABULARY), plan()) == ([[], []], {})
