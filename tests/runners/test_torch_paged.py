"""The torch runner against transformers' own eager attention, on random models."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from framework import Request, SamplingParams, Scheduler, SchedulerConfig  # noqa: E402
from framework.output import (  # noqa: E402
    CachedRequestData,
    ConnectorMetadata,
    NewRequestData,
    SchedulerOutput,
)
from runners.common.batch import flatten  # noqa: E402
from runners.common.routing import attach  # noqa: E402
from runners.common.state import RequestState, ScheduledRow  # noqa: E402
from runners.torch_paged import TorchRunner  # noqa: E402
from runners.torch_paged.attention import PagedCache  # noqa: E402
from tests.runners import tiny  # noqa: E402
from tests.runners.driving import (  # noqa: E402
    BLOCK_SIZE,
    PLAIN,
    STACKS,
    drive,
    prompts,
    serve,
    tight,
)

if TYPE_CHECKING:
    pass


@torch.inference_mode()
def run_rows(kind: str, cache: PagedCache, rows: list[ScheduledRow]) -> list[torch.Tensor]:
    """Logits of all tokens of each row."""
    model = tiny.model(kind)
    attach(model, cache)
    batch = flatten(rows, cache.block_size)
    cache.begin(batch)
    ids, positions = (torch.from_numpy(array)[None] for array in (batch.input_ids, batch.positions))
    out = model(input_ids=ids, position_ids=positions, use_cache=False)
    return list(out.logits[0].split([len(row.tokens) for row in rows]))


@pytest.mark.parametrize("kind", tiny.KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_flat_paged_logits_are_the_eager_ones(kind: str, seed: int) -> None:
    """Random chunks of several requests, mixed in one batch, over scattered tables."""
    draw = random.Random(seed)
    lengths = [40, 9, 33, 21, 25]
    blocks = list(range(1, 1 + sum(-(-length // BLOCK_SIZE) for length in lengths)))
    draw.shuffle(blocks)
    cache = PagedCache(len(blocks) + 1, BLOCK_SIZE, torch.float32)
    states = []
    for index, length in enumerate(lengths):
        tokens = [draw.randrange(tiny.VOCABULARY) for _ in range(length)]
        table = [blocks.pop() for _ in range(-(-length // BLOCK_SIZE))]
        states.append(RequestState(f"r{index}", tokens, length, table, SamplingParams(), 0, 0))
    found: dict[str, list[torch.Tensor]] = {state.request_id: [] for state in states}
    while unfinished := [state for state in states if state.num_computed < len(state.token_ids)]:
        rows = []
        for state in draw.sample(unfinished, draw.randint(1, len(unfinished))):
            start = state.num_computed
            count = draw.choice([1, 1, 3, 8, 9, 17])
            tokens = state.token_ids[start : start + count]
            rows.append(ScheduledRow(state, tokens, start, 0, False))
            state.num_computed += len(tokens)
        for row, logits in zip(rows, run_rows(kind, cache, rows), strict=True):
            found[row.state.request_id].append(logits)
    for state in states:
        expected = tiny.logits_of(kind, state.token_ids)
        torch.testing.assert_close(
            torch.cat(found[state.request_id]), expected, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_greedy_tokens_are_those_of_the_original(kind: str) -> None:
    expected = [tiny.greedy(kind, prompt, 10) for prompt in prompts()]
    stack, fields = STACKS["all"]
    runner = TorchRunner(tiny.model(kind), tight(**fields), num_threads=1)
    outputs, _ = serve(runner, stack, SamplingParams(max_tokens=10, temperature=0))
    assert outputs == expected * 2


@pytest.mark.parametrize("name", STACKS)
def test_no_feature_changes_a_token(name: str) -> None:
    expected = [tiny.greedy("llama", prompt, 10) for prompt in prompts()]
    stack, fields = STACKS[name]
    runner = TorchRunner(tiny.model("llama"), tight(**fields), num_threads=1)
    outputs, scheduler = serve(runner, stack, SamplingParams(max_tokens=10, temperature=0))
    counters = scheduler.counters
    assert outputs == expected * 2
    assert counters.num_preemptions > 0
    assert counters.num_prefix_hit > 0
    assert (counters.num_drafts_accepted > 0) == ("num_spec_tokens" in fields)
    assert len(runner.states) == 0


@pytest.mark.parametrize("name", ["async", "drafts", "all"])
def test_no_feature_changes_what_a_seed_gives(name: str) -> None:
    params = SamplingParams(max_tokens=10, temperature=0.7, top_p=0.9, seed=11)
    calm = SchedulerConfig(block_size=BLOCK_SIZE, max_model_len=128)
    expected, _ = serve(TorchRunner(tiny.model("llama"), calm, num_threads=1), PLAIN, params)
    stack, fields = STACKS[name]
    outputs, _ = serve(
        TorchRunner(tiny.model("llama"), tight(**fields), num_threads=1), stack, params
    )
    assert outputs == expected


def test_the_runners_seed_counts_where_a_request_brings_none() -> None:
    params = SamplingParams(max_tokens=10, temperature=1.0)
    model = tiny.model("llama")
    drawn = [
        serve(TorchRunner(model, tight(), num_threads=1, seed=seed), PLAIN, params)[0]
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_runners_of_one_model_do_not_meet() -> None:
    config = SchedulerConfig(block_size=BLOCK_SIZE, max_model_len=128)
    first = TorchRunner(tiny.model("llama"), config, num_threads=1)
    second = first.fresh(config)
    prompt, expected = prompts()[0], tiny.greedy("llama", prompts()[0], 4)
    schedulers = [Scheduler(config, PLAIN) for _ in range(2)]
    requests = [
        Request("r", prompt, SamplingParams(max_tokens=4, temperature=0)) for _ in schedulers
    ]
    for scheduler, request in zip(schedulers, requests, strict=True):
        scheduler.add_request(request)
    for _ in range(3):
        for scheduler, runner in zip(schedulers, (first, second), strict=True):
            plan = scheduler.schedule()
            scheduler.update_from_output(plan, runner.execute(plan))
    second.close()
    drive(schedulers[0], first)
    assert requests[0].output_token_ids == expected


def step(new: NewRequestData | None = None, count: int = 0, **fields: Any) -> SchedulerOutput:
    scheduled = {new.request_id: count} if new else {}
    return SchedulerOutput(0, scheduled, [new] if new else [], CachedRequestData(), count, **fields)


def greedy_request(prompt: list[int], blocks: list[int], num_computed: int = 0) -> NewRequestData:
    params = SamplingParams(temperature=0)
    return NewRequestData(f"r{blocks[0]}", prompt, params, blocks, num_computed)


def test_stored_blocks_come_back_after_zeroing() -> None:
    runner = TorchRunner(tiny.model("llama"), tight(), num_threads=1)
    prompt = prompts()[0][:9]
    first = runner.execute(step(greedy_request(prompt, [1, 2, 3]), 9)).sampled_token_ids
    kept = [tensor[1:3].clone() for tensor in runner.cache.tensors()]
    moves = ConnectorMetadata(
        stores=[(b"x", 1), (b"y", 2)],
        loads=[(b"x", 6), (b"y", 5)],
        sending=["gone"],
        receiving=["here"],
    )
    told = runner.execute(step(connector_metadata=moves, new_block_ids_to_zero=[1, 2, 5, 6]))
    assert (told.finished_sending, told.finished_recving) == (["gone"], ["here"])
    for tensor, before in zip(runner.cache.tensors(), kept, strict=True):
        assert not tensor[1:3].any()
        assert torch.equal(tensor[[6, 5]], before)
    again = runner.execute(step(greedy_request(prompt, [6, 5, 7], 8), 1)).sampled_token_ids
    assert again == first


@pytest.mark.parametrize(
    "drop",
    [{"connector_metadata": ConnectorMetadata(drop=[b"x", b"never stored"])}, {"drop_kept": True}],
    ids=["by name", "all"],
)
def test_dropped_names_are_forgotten(drop: dict[str, Any]) -> None:
    runner = TorchRunner(tiny.model("llama"), tight(), num_threads=1)
    runner.execute(step(greedy_request(prompts()[0][:5], [1, 2]), 5))
    runner.execute(step(connector_metadata=ConnectorMetadata(stores=[(b"x", 1)])))
    runner.execute(step(**drop))
    with pytest.raises(KeyError):
        runner.execute(step(connector_metadata=ConnectorMetadata(loads=[(b"x", 3)])))


def test_a_grammar_holds_for_the_token_and_not_for_its_logprobs() -> None:
    runner = TorchRunner(tiny.model("llama"), tight(), num_threads=1)
    prompt = prompts()[0][:9]
    free = tiny.greedy("llama", prompt, 1)[0]
    bitmask = [[0, 1 << 3, 0, 0], [-1, -1, -1, -1]]
    told = {}
    for row in (0, 1):
        new = greedy_request(prompt, [1 + 3 * row, 2 + 3 * row, 3 + 3 * row])
        new.sampling_params = SamplingParams(temperature=0, logprobs=1)
        plan = step(new, 9, structured_output_request_ids={new.request_id: row})
        plan.grammar_bitmask = torch.tensor(bitmask, dtype=torch.int32)
        told[row] = runner.execute(plan)
    assert [told[row].sampled_token_ids for row in (0, 1)] == [[[32 + 3]], [[free]]]
    assert list(told[0].logprobs["r1"][0].top) == [free] == list(told[1].logprobs["r4"][0].top)


def test_padding_of_a_new_request_is_not_verified() -> None:
    runner = TorchRunner(tiny.model("llama"), tight(), num_threads=1)
    prompt = prompts()[0][:9]
    runner.execute(step(greedy_request(prompt[:8], [1, 2]), 8))
    padded = greedy_request(prompt, [3, 4, 5, 6])
    plan = step(padded, 9 + 2, scheduled_spec_decode_tokens={"r3": [-1, -1]})
    assert runner.execute(plan).sampled_token_ids == [tiny.greedy("llama", prompt, 1)]


def test_bfloat16_runs_and_gives_each_request_its_tokens() -> None:
    model = tiny.accept(tiny.build("llama").to(torch.bfloat16))
    runner = TorchRunner(model, tight(), num_threads=1)
    assert runner.cache.dtype == torch.bfloat16
    outputs, _ = serve(runner, PLAIN, SamplingParams(max_tokens=10, temperature=0))
    assert [len(tokens) for tokens in outputs] == [10] * 16
