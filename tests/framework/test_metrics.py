from __future__ import annotations

import pytest

from framework.metrics import Distribution, Timeline, summarise


def preempted_request() -> Timeline:
    """Arrives at 0, gets 3 tokens until 30, is away from 30 to 80, gets 2 more, in ms."""
    line = Timeline(arrival=0.0, num_prompt_tokens=8)
    line.admitted(0.0, 4, resumed=False)
    for now in (0.010, 0.020, 0.030):
        line.delivered(now, 1)
    line.lost_place(0.030)
    line.admitted(0.080, 8, resumed=True)
    for now in (0.090, 0.100):
        line.delivered(now, 1)
    line.finish = 0.100
    return line


def test_the_first_token_is_timed_once() -> None:
    assert preempted_request().ttft_s == pytest.approx(0.010)


def test_gaps_sum_to_the_time_after_the_first_token() -> None:
    line = preempted_request()
    assert line.e2e_s is not None and line.ttft_s is not None
    assert len(line.gaps) == 4
    assert sum(line.gaps) == pytest.approx(line.e2e_s - line.ttft_s)


def test_queueing_is_the_first_wait_and_preempted_time_stands_apart() -> None:
    line = preempted_request()
    assert line.queueing_s == 0.0
    assert line.preempted_s == pytest.approx(0.050)
    assert line.num_preemptions == 1


def test_cached_tokens_are_those_of_the_first_admission() -> None:
    summary = summarise([preempted_request()])
    assert (summary.num_cached_tokens, summary.num_prompt_tokens) == (4, 8)
    assert summary.hit_rate == 0.5


def test_an_admission_that_was_undone_gives_way_to_the_next() -> None:
    line = Timeline(arrival=0.0, num_prompt_tokens=8)
    line.admitted(1.0, 4, resumed=False)
    line.admitted(2.0, 0, resumed=False)
    assert (line.queueing_s, line.num_cached_tokens) == (2.0, 0)


def test_a_second_loss_without_return_begins_no_new_absence() -> None:
    line = Timeline(arrival=0.0, num_prompt_tokens=8)
    line.lost_place(1.0)
    line.lost_place(2.0)
    line.admitted(4.0, 0, resumed=True)
    assert (line.preempted_s, line.num_preemptions) == (3.0, 2)


def test_one_output_token_has_no_tpot() -> None:
    line = Timeline(arrival=0.0, num_prompt_tokens=8)
    line.delivered(1.0, 1)
    assert line.tpot_s is None
    assert summarise([line]).tpot_s == Distribution()


def test_drafts_that_arrive_together_share_the_time() -> None:
    line = Timeline(arrival=0.0, num_prompt_tokens=8)
    line.delivered(1.0, 1)
    line.delivered(2.0, 4)
    assert line.gaps == [1.0]
    assert line.tpot_s == 0.25


def test_nothing_that_has_not_happened_is_a_number() -> None:
    line = Timeline(arrival=5.0, num_prompt_tokens=8)
    assert (line.ttft_s, line.tpot_s, line.e2e_s, line.queueing_s) == (None,) * 4


def test_percentiles_carry_their_sample_count() -> None:
    found = Distribution.of([None, *(float(value) for value in range(101))])
    assert (found.count, found.p50, found.p90, found.p99, found.max) == (101, 50, 90, 99, 100)


def test_throughput_counts_from_the_first_arrival_to_the_last_token() -> None:
    summary = summarise([preempted_request()])
    assert summary.output_tokens_per_s == pytest.approx(50)
    assert summarise([]).output_tokens_per_s is None
