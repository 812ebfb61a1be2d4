"""A victim that was given tokens in this very step leaves the plan with everything it got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from framework import EncoderInput, Request, StepView, hookimpl
from tests.support import PRIORITY, Bench, bench, prompt

if TYPE_CHECKING:
    from collections.abc import Sequence


@define(eq=False)
class LastComeFirst:
    """Admits the least urgent first, so that it stands first among the running."""

    left: list[int] = field(factory=list)

    @hookimpl
    def select_waiting(self, waiting: Sequence[Request]) -> Request:
        return waiting[-1]

    @hookimpl
    def request_preempted(self, step: StepView) -> None:
        self.left.append(step.budget_left)


@define(eq=False)
class Encoder:
    """Room for encoder outputs."""

    room: dict[str, int] = field(factory=dict)
    released: list[str] = field(factory=list)

    @hookimpl
    def allocate_encoder(self, request: Request, num_new_tokens: int) -> Sequence[int]:
        self.room[request.request_id] = num_new_tokens
        return [0]

    @hookimpl
    def release_encoder(self, request: Request) -> Sequence[str]:
        self.released.append(request.request_id)
        del self.room[request.request_id]
        return [item.content_id for item in request.encoder_inputs]


def both_prefilled(b: Bench, **fields: Any) -> tuple[Request, Request]:
    """B (priority 5) runs before A (priority 0); each holds two blocks and one output token."""
    a = b.add("A", prompt(8, 100), 8, priority=0)
    other = b.add("B", prompt(8, 200), 8, priority=5, **fields)
    assert b.step() == {"B": 8, "A": 8}
    assert [request.request_id for request in b.scheduler.running] == ["B", "A"]
    return a, other


def test_tokens_blocks_and_budget_of_the_victim_are_given_back() -> None:
    policy = LastComeFirst()
    b = bench((*PRIORITY, policy), blocks=5, budget=64)
    a, victim = both_prefilled(b)
    output = b.schedule()
    assert output.num_scheduled_tokens == {"A": 1}
    assert output.total_num_scheduled_tokens == 1
    assert output.preempted_req_ids == ["B"]
    assert policy.left == [64]
    assert b.scheduler.kv is not None
    assert b.scheduler.kv.block_ids(victim) == []
    assert b.scheduler.kv.num_free_blocks == 2
    assert victim.num_computed_tokens == 0
    assert b.scheduler.waiting_requests() == [victim]
    assert b.scheduler.running == [a]
    b.update(output)
    b.finish()


def test_drafts_of_the_victim_are_given_back() -> None:
    stack = (*PRIORITY, 'spec_decode(method="runner")', LastComeFirst())
    b = bench(stack, blocks=5, budget=64, num_spec_tokens=2)
    b.runner.drafts = lambda name, position, count: [7] * count
    a, victim = both_prefilled(b)
    assert victim.spec_token_ids == [7, 7]
    output = b.schedule()
    assert output.num_scheduled_tokens == {"A": 3}
    assert output.scheduled_spec_decode_tokens == {"A": [7, 7]}
    assert victim.spec_token_ids == []
    assert victim.num_known_tokens == victim.num_tokens == 9
    b.update(output)
    b.finish()
    assert a.num_output_tokens == victim.num_output_tokens == 8


def test_encoder_room_of_the_victim_is_given_back() -> None:
    encoder = Encoder()
    b = bench((*PRIORITY, encoder, LastComeFirst()), blocks=5, budget=64)
    image = EncoderInput(content_id="cat", position=0, num_tokens=4)
    both_prefilled(b, encoder_inputs=[image])
    output = b.schedule()
    assert output.num_scheduled_tokens == {"A": 1}
    assert output.scheduled_encoder_inputs == {}
    assert output.free_encoder_input_ids == ("cat",)
    assert encoder.room == {}
    b.update(output)
    b.finish()
    assert encoder.room == {}
