"""Verified drafts change how many tokens come out, never which."""

from __future__ import annotations

import torch

from framework import SamplingParams
from runners.common.sampling import rows_of, sample
from runners.common.state import RequestState, ScheduledRow
from runners.triton.kernels.rejection import verify_drafts, verify_drafts_reference
from runners.triton.kernels.sample import sample_tokens
from tests.kernels.support import Guards


def whole(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def test_verified_tokens_are_the_references(device: str) -> None:
    guards = Guards(device)
    drawn = whole([5, 6, 7, 8, 5, 6, 7, 1, 2, 9])
    drafts = whole([[5, 6, 7], [5, 0, 7], [-1, -1, -1], [5, 5, 5], [9, -1, -1]])
    rows = whole([3, 2, 0, 0, 1]), whole([0, 4, 7, -1, 8])
    tokens = guards.empty(5, 4, dtype=torch.int32)
    counts = guards.empty(5, dtype=torch.int32)
    verify_drafts(*(guards.put(values) for values in (drawn, drafts, *rows)), tokens, counts)
    guards.check()
    assert tokens.tolist() == [
        [5, 6, 7, 8],
        [5, 6, -1, -1],
        [1] + [-1] * 3,
        [-1] * 4,
        [2] + [-1] * 3,
    ]
    assert counts.tolist() == [4, 2, 1, 0, 1]
    expected = torch.zeros(5, 4, dtype=torch.int32), torch.zeros(5, dtype=torch.int32)
    verify_drafts_reference(drawn, drafts, *rows, *expected)
    assert (tokens.tolist(), counts.tolist()) == (expected[0].tolist(), expected[1].tolist())


def test_without_drafts_there_is_one_token_each(device: str) -> None:
    drawn, zeros, first = (whole(values).to(device) for values in ([4, 8], [0, 0], [1, 0]))
    tokens, counts = torch.zeros_like(drawn)[:, None], torch.zeros_like(drawn)
    verify_drafts(drawn, tokens[:, :0], zeros, first, tokens, counts)
    assert (tokens.tolist(), counts.tolist()) == ([[8], [4]], [1, 1])


def scheduled(index: int, drafts: list[int], samples: bool) -> ScheduledRow:
    params = SamplingParams(temperature=0.5 * (index % 3), top_p=0.9, top_k=4 * (index % 2))
    state = RequestState(f"r{index}", [1] * (index + 2), 2, [], params, index + 1, 2**63 + index)
    return ScheduledRow(state, [1, *drafts], index + 1, len(drafts), samples)


def test_sampling_and_verifying_are_those_of_the_shared_rules(device: str) -> None:
    by_position = torch.randn(20, 8, generator=torch.Generator().manual_seed(28)) * 3
    best = by_position.argmax(dim=-1).tolist()
    requests = [
        scheduled(index, [best[index], best[index + 1], index % 8][: index % 4], index != 5)
        for index in range(16)
    ]
    rows = rows_of(requests)
    logits = torch.stack([by_position[row.num_outputs] for row in rows])
    guards, given = Guards(device), [row.params for row in rows]
    tokens = guards.empty(len(rows), dtype=torch.int32)
    sample_tokens(
        guards.put(logits),
        guards.put(torch.tensor([one.temperature for one in given])),
        guards.put(whole([one.top_k for one in given])),
        guards.put(torch.tensor([one.top_p for one in given])),
        guards.put(torch.tensor([one.min_p for one in given])),
        guards.put(torch.tensor([row.state.seed - 2**64 for row in rows])),
        guards.put(torch.tensor([row.num_outputs for row in rows])),
        tokens,
    )
    owners = [row.state.request_id for row in rows]
    first = [owners.index(f"r{index}") if index != 5 else -1 for index in range(16)]
    drafts = [(row.tokens[1:] + [-1] * 3)[:3] for row in requests]
    out, counts = guards.empty(16, 4, dtype=torch.int32), guards.empty(16, dtype=torch.int32)
    amounts = whole([row.num_drafts for row in requests])
    verify_drafts(
        tokens, *(guards.put(x) for x in (whole(drafts), amounts, whole(first))), out, counts
    )
    guards.check()
    found = [row[:count] for row, count in zip(out.tolist(), counts.tolist(), strict=True)]
    assert found == sample(requests, logits)[0]
    assert {len(row) for row in found} >= {0, 1, 2, 3}
