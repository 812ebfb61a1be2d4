"""Results that whoever asks first brings to the host."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from framework import RunnerError, RunnerOutput
from runners.triton.late import LateOutput

NUM_THREADS = 8


def test_nothing_is_waited_for_before_somebody_asks() -> None:
    late = LateOutput(lambda: RunnerOutput([[1]]))
    assert not late.done()
    assert late.result().sampled_token_ids == [[1]]
    assert late.done()


def test_many_threads_get_one_result_that_is_read_once() -> None:
    calls = []

    def finish() -> RunnerOutput:
        calls.append(None)
        time.sleep(0.05)
        return RunnerOutput([[len(calls)]])

    late = LateOutput(finish)
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        found = list(threads.map(lambda _: late.result(), range(NUM_THREADS)))
    assert len(calls) == 1
    assert all(output is found[0] for output in found)


def test_what_reading_raises_is_raised_to_everybody_who_asks() -> None:
    calls = []

    def finish() -> RunnerOutput:
        calls.append(None)
        raise RunnerError("the device is gone")

    late = LateOutput(finish)
    for _ in range(2):
        with pytest.raises(RunnerError, match="the device is gone"):
            late.result()
    assert str(late.exception()) == "the device is gone"
    assert len(calls) == 1


def test_asking_for_the_exception_reads_the_result_too() -> None:
    late = LateOutput(lambda: RunnerOutput([]))
    assert late.exception(timeout=5) is None
    assert late.done()
