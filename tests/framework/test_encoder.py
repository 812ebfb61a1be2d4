"""Encoder outputs: every chunk of a prompt asks for room, which goes back with the place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from framework import EncoderInput, PolicyError, Request, StepView, hookimpl
from tests.support import DISPLACING, FCFS, PRIORITY, bench

if TYPE_CHECKING:
    from collections.abc import Sequence


@define(eq=False)
class Encoder:
    """Runs each input in the step that reaches its first placeholder; room for any number."""

    room: dict[str, set[int]] = field(factory=dict)
    asked: list[tuple[str, int, int]] = field(factory=list)
    fails_at: int = -1

    @hookimpl
    def allocate_encoder(
        self, request: Request, num_new_tokens: int, step: StepView
    ) -> Sequence[int]:
        start = request.num_computed_tokens
        self.asked.append((request.request_id, start, num_new_tokens))
        if step.number == self.fails_at:
            raise ValueError("no room")
        held = self.room.setdefault(request.request_id, set())
        reached = [
            index
            for index, item in enumerate(request.encoder_inputs)
            if index not in held and item.position < start + num_new_tokens
        ]
        held.update(reached)
        return reached

    @hookimpl
    def release_encoder(self, request: Request) -> Sequence[str]:
        held = self.room.pop(request.request_id, set())
        return [request.encoder_inputs[index].content_id for index in sorted(held)]


def images(*positions: int) -> list[EncoderInput]:
    return [EncoderInput(content_id=f"at {at}", position=at, num_tokens=1) for at in positions]


def test_every_chunk_asks_for_the_inputs_it_reaches() -> None:
    """Four chunks of eight; the last prompt token is an input of its own."""
    encoder = Encoder()
    b = bench((*FCFS, encoder), budget=8)
    b.add("x", 25, 2, encoder_inputs=images(0, 3, 10, 24))
    b.steps(4)
    assert [output.scheduled_encoder_inputs for output in b.outputs] == [
        {"x": [0, 1]},
        {"x": [2]},
        {},
        {"x": [3]},
    ]
    assert encoder.asked == [("x", 0, 8), ("x", 8, 8), ("x", 16, 8), ("x", 24, 1)]
    b.finish()
    assert encoder.room == {}


def test_a_request_without_inputs_is_not_asked_about() -> None:
    encoder = Encoder()
    b = bench((*FCFS, encoder), budget=8)
    b.add("x", 25, 4)
    b.finish()
    assert encoder.asked == []


@pytest.mark.parametrize("victim_first", [True, False])
def test_a_victim_gives_its_room_back_planned_or_not(victim_first: bool) -> None:
    """The victim stands before or after the one that needs its block."""
    encoder = Encoder()
    b = bench((*PRIORITY, encoder), blocks=5)
    low: dict[str, Any] = {"priority": 5, "encoder_inputs": images(2)}
    names = ["low", "high"] if victim_first else ["high", "low"]
    for name in names:
        b.add(name, 7 if name == names[0] else 8, 9, **(low if name == "low" else {}))
        b.step()
    while not b.preempted:
        b.step()
    assert b.preempted == ["low"]
    assert b.outputs[-1].free_encoder_input_ids == ("at 2",)
    b.finish()
    assert encoder.room == {}


def test_a_displaced_request_gives_its_room_back() -> None:
    encoder = Encoder()
    b = bench((*DISPLACING, encoder), max_num_seqs=1)
    b.add("low", 8, 4, priority=5, encoder_inputs=images(2))
    b.step()
    b.add("high", 8, 2)
    output = b.schedule()
    assert output.preempted_req_ids == ["low"]
    assert output.free_encoder_input_ids == ("at 2",)
    assert encoder.room == {}
    b.update(output)
    b.finish()
    assert encoder.room == {}


def test_a_step_whose_room_cannot_be_had_is_dropped_and_planned_again() -> None:
    encoder = Encoder(fails_at=1)
    b = bench((*FCFS, encoder), budget=8)
    request = b.add("x", 20, 2, encoder_inputs=images(10))
    b.step()
    with pytest.raises(PolicyError, match=r"'allocate_encoder' .*'x': raised ValueError: no room"):
        b.schedule()
    assert request.num_computed_tokens == 8
    encoder.fails_at = -1
    b.finish()
    assert request.num_output_tokens == 2
