"""Penalties change what `runners.common.sampling` changes; stop tokens wait."""

from __future__ import annotations

import pytest
import torch
from attrs import define

from framework import SamplingParams
from runners.common import sampling
from runners.common.sampling import Row
from runners.common.state import RequestState
from runners.triton.kernels import penalties
from runners.triton.kernels.penalties import apply_penalties, apply_penalties_reference
from runners.triton.kernels.stop_tokens import (
    suppress_stop_tokens,
    suppress_stop_tokens_reference,
)
from tests.kernels.support import Guards, assert_close

SIZE = 97
NEUTRAL = (1.0, 0.0, 0.0)
KINDS = [
    (1.3, 0.0, 0.0),
    NEUTRAL,
    (0.8, 0.4, 0.0),
    (1.0, -0.5, 0.25),
    (1.0, 0.0, -2.0),
    (5.0, 2.0, 2.0),
]


@define
class Case:
    """Rows of logits of requests: tokens, then what belongs to each row."""

    logits: torch.Tensor
    tokens: torch.Tensor
    row_of: list[int]
    lengths: list[int]
    prompt_lengths: list[int]
    drafts: torch.Tensor
    num_drafts: list[int]
    kinds: list[tuple[float, float, float]]

    def arguments(self, guards: Guards) -> dict[str, torch.Tensor]:
        """What the launcher takes by name."""
        whole = {
            name: guards.put(torch.tensor(getattr(self, name), dtype=torch.int32))
            for name in ("row_of", "lengths", "prompt_lengths", "num_drafts")
        }
        columns = zip(
            ("repetition", "presence", "frequency"), zip(*self.kinds, strict=True), strict=True
        )
        numbers = {name: guards.put(torch.tensor(column)) for name, column in columns}
        return {**whole, **numbers, "drafts": guards.put(self.drafts)}

    def rows(self) -> list[Row]:
        """The same for `runners.common.sampling`."""
        found = []
        for index, (owner, kind) in enumerate(zip(self.row_of, self.kinds, strict=True)):
            repetition, presence, frequency = kind
            params = SamplingParams(
                repetition_penalty=repetition,
                presence_penalty=presence,
                frequency_penalty=frequency,
            )
            known = self.tokens[owner, : self.lengths[index]].tolist()
            state = RequestState("r", known, self.prompt_lengths[index], [], params, 0, 0)
            drafts = self.drafts[index, : self.num_drafts[index]].tolist()
            found.append(Row(state, drafts, None))
        return found


def case(*, copies: int = 2, num_drafts: int = 3) -> Case:
    """Every kind of row; of few different tokens, so that most stand there several times."""
    draw = torch.Generator().manual_seed(5)
    number = len(KINDS) * copies
    tokens = torch.randint(0, 40, (number + 3, 70), generator=draw, dtype=torch.int32)
    row_of = torch.randperm(number + 3, generator=draw)[:number].tolist()
    lengths = torch.randint(3, 70, (number,), generator=draw).tolist()
    return Case(
        torch.randn(number, SIZE, generator=draw) * 3,
        tokens,
        row_of,
        lengths,
        [max(1, length - 3 * index) for index, length in enumerate(lengths)],
        torch.randint(30, 60, (number, max(1, num_drafts)), generator=draw, dtype=torch.int32),
        [index % (num_drafts + 1) for index in range(number)],
        KINDS * copies,
    )


def penalised(guards: Guards, given: Case, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What the kernels make of the logits; checks margins and that the counts are zeros again."""
    logits = guards.put(given.logits.to(dtype))
    counts = guards.put(torch.zeros(4, SIZE, dtype=torch.int32))
    apply_penalties(logits, guards.put(given.tokens), **given.arguments(guards), counts=counts)
    guards.check()
    assert not counts.any()
    return logits


@pytest.mark.parametrize("tile", [8, 1024])
def test_logits_are_those_of_the_shared_rules(
    device: str, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(penalties, "TILE", tile)
    given = case(copies=1 if tile == 8 else 3)
    expected = given.logits.clone()
    sampling._adjust(given.rows(), expected)
    assert_close(penalised(Guards(device), given).cpu(), expected)


def test_logits_are_the_references(device: str, dtype: torch.dtype) -> None:
    guards, given = Guards(device), case()
    given.row_of[3] = given.row_of[4] = -1
    expected = given.logits.to(device, dtype, copy=True)
    apply_penalties_reference(expected, given.tokens.to(device), **given.arguments(guards))
    assert_close(penalised(guards, given, dtype), expected)


def test_rows_without_a_penalty_are_as_they_were(device: str) -> None:
    given = case()
    given.row_of[2] = -1
    logits = penalised(Guards(device), given).cpu()
    untouched = [index for index, kind in enumerate(given.kinds) if kind == NEUTRAL] + [2]
    assert torch.equal(logits[untouched], given.logits[untouched])
    assert all((logits[index] != given.logits[index]).any() for index in (0, 3, 4, 5))


def test_only_tokens_that_occur_are_changed_and_minus_infinity_stays(device: str) -> None:
    given = case()
    given.logits[:, ::2] = -torch.inf
    logits = penalised(Guards(device), given).cpu()
    assert (logits[:, ::2] == -torch.inf).all()
    assert torch.equal(logits[:, 60:], given.logits[:, 60:])


def test_rows_of_one_request_count_their_own_drafts(device: str) -> None:
    given = case(copies=1)
    kind = (1.0, 0.5, 0.25)
    given.row_of, given.kinds = [1] * 6, [kind] * 6
    given.lengths, given.prompt_lengths = [4] * 6, [3] * 6
    given.tokens[1, 3] = 7
    given.drafts = torch.tensor([[7, 9]] * 6, dtype=torch.int32)
    given.num_drafts = [0, 1, 2] * 2
    changes = given.logits - penalised(Guards(device), given).cpu()
    torch.testing.assert_close(changes[:3, 7], torch.tensor([0.75, 1.0, 1.0]))
    torch.testing.assert_close(changes[:3, 9], torch.tensor([0.0, 0.0, 0.75]))


def test_without_drafts_and_without_counts_of_the_callers(device: str) -> None:
    guards, given = Guards(device), case(copies=1, num_drafts=0)
    given.drafts = torch.empty(6, 0, dtype=torch.int32)
    expected, logits = given.logits.to(device, copy=True), guards.put(given.logits)
    tokens, arguments = given.tokens.to(device), given.arguments(guards)
    apply_penalties_reference(expected, tokens, **arguments)
    apply_penalties(logits, tokens, **arguments)
    guards.check()
    assert_close(logits, expected)


def test_stop_tokens_are_taken_out(device: str, dtype: torch.dtype) -> None:
    guards = Guards(device)
    logits = torch.randn(4, SIZE).to(dtype)
    stops = torch.tensor([[0, 96, 5], [-1, -1, -1], [7, -1, -1], [-1, -1, 3]], dtype=torch.int32)
    expected, found = logits.clone(), guards.put(logits)
    suppress_stop_tokens_reference(expected, stops)
    suppress_stop_tokens(found, guards.put(stops))
    guards.check()
    assert torch.equal(found.cpu(), expected)
    assert (found == -torch.inf).sum(dim=-1).tolist() == [3, 0, 1, 1]


def test_no_stop_tokens_change_nothing(device: str) -> None:
    logits = torch.zeros(2, 5, device=device)
    suppress_stop_tokens(logits, torch.empty(2, 0, dtype=torch.int32, device=device))
    assert not logits.any()
