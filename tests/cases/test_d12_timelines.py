"""A preemption rewrites no time and counts no prompt twice."""

from __future__ import annotations

import pytest
from attrs import define

from framework.metrics import Recorder, Timeline, summarise
from tests.support import DISPLACING, Bench, bench


@define
class Milliseconds:
    """A clock that stands still within a step; milliseconds, so that sums are exact."""

    time: float = 0.0

    def now(self) -> float:
        return self.time


@define(eq=False)
class Served:
    """A is preempted by U from 30 to 80: one slot, steps of 10 ms."""

    b: Bench
    clock: Milliseconds
    recorder: Recorder

    def timeline(self, name: str) -> Timeline:
        request = next(request for request in self.b.requests if request.request_id == name)
        return self.recorder.track(request)

    def step(self) -> None:
        output = self.b.schedule()
        self.clock.time += 10
        result = self.b.update(output)
        for name in result.req_ids:
            self.timeline(name).delivered(self.clock.time, 1)
        for name in result.finish_reasons:
            self.timeline(name).finish = self.clock.time


@pytest.fixture
def served() -> Served:
    clock, recorder = Milliseconds(), Recorder()
    b = bench((*DISPLACING, recorder), max_num_seqs=1, clock=clock)
    run = Served(b, clock, recorder)
    b.add("A", 8, 5, priority=5, arrival_time=0.0)
    while b.scheduler.has_unfinished_requests():
        if clock.time == 30:
            b.add("U", 8, 5, priority=0, arrival_time=30.0)
        run.step()
    b.finish()
    return run


def test_it_went_as_told(served: Served) -> None:
    times = {(event.kind, event.request_id): event.time for event in served.b.scheduler.events}
    assert times == {
        ("arrived", "A"): 0,
        ("admitted", "A"): 0,
        ("arrived", "U"): 30,
        ("displaced", "A"): 30,
        ("admitted", "U"): 30,
        ("finished", "U"): 80,
        ("resumed", "A"): 80,
        ("finished", "A"): 100,
    }


def test_the_first_token_and_the_end_are_timed_once(served: Served) -> None:
    line = served.timeline("A")
    assert (line.ttft_s, line.e2e_s) == (10, 100)


def test_gaps_are_those_between_five_tokens_and_sum_to_the_rest(served: Served) -> None:
    line = served.timeline("A")
    assert line.gaps == [10, 10, 60, 10]
    assert sum(line.gaps) == 100 - 10
    assert line.tpot_s == 90 / 4


def test_queueing_is_the_first_wait_and_the_absence_stands_apart(served: Served) -> None:
    line = served.timeline("A")
    assert (line.queueing_s, line.preempted_s, line.num_preemptions) == (0, 50, 1)


def test_a_first_wait_is_queueing_and_no_absence(served: Served) -> None:
    late = served.b.add("late", 8, 2, arrival_time=served.clock.time - 25)
    served.step()
    line = served.recorder.track(late)
    assert (line.queueing_s, line.ttft_s, line.preempted_s) == (25, 35, 0)


def test_prompts_and_look_ups_count_once_and_returns_under_a_label_of_their_own(
    served: Served,
) -> None:
    """A comes back with 8 + 3 tokens, of which two full blocks are still cached."""
    counters = served.b.scheduler.counters
    assert (counters.num_prefix_queried, counters.num_prefix_hit) == (16, 0)
    assert (counters.num_prefix_queried_again, counters.num_prefix_hit_again) == (11, 8)
    assert (counters.num_admissions, counters.num_preemptions) == (3, 1)
    summary = summarise([served.timeline("A"), served.timeline("U")])
    assert (summary.num_prompt_tokens, summary.num_output_tokens) == (16, 10)
    assert (summary.num_cached_tokens, summary.hit_rate) == (0, 0)


def test_one_token_alone_has_no_time_per_further_token(served: Served) -> None:
    one = served.b.add("one", 8, 1, arrival_time=served.clock.time)
    served.step()
    line = served.recorder.track(one)
    assert (line.ttft_s, line.e2e_s) == (10, 10)
    assert line.tpot_s is None
    assert summarise([line]).tpot_s.count == 0
