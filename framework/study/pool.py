"""Runs spread over processes of this machine; results come in the order of the jobs.

A process counts ended requests in shared memory, so that one bar can show the whole study.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from framework.study.job import Done, run_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from framework.study.job import Job

EVERY_S = 0.2
"""How often progress is looked at."""
AT_ONCE = 50
"""Requests that end before a process says so."""

_shared: Any = None


def num_processors() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(
    jobs: Sequence[Job],
    num_processes: int = 1,
    progress: Callable[[int], object] | None = None,
) -> list[Done]:
    """Run all.

    Args:
        jobs: what to run.
        num_processes: at once; 1 = in this process.
        progress: told how many requests have just ended, over all jobs.

    Raises:
        ConfigError: a workload cannot be made.
    """
    tell = progress or (lambda _: None)
    if min(num_processes, len(jobs)) <= 1:
        return [run_job(job, tell) for job in jobs]
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    pool = ProcessPoolExecutor(
        min(num_processes, len(jobs)), context, initializer=_begin, initargs=(counter,)
    )
    try:
        futures = [pool.submit(_run, job) for job in jobs]
        _watch(futures, counter, tell)
        return [future.result() for future in futures]
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _watch(futures: Sequence[Future[Done]], counter: Any, tell: Callable[[int], object]) -> None:
    """Until all are done or one has failed, pass on how far they are."""
    left, seen = set(futures), 0
    while left:
        done, left = wait(left, EVERY_S, FIRST_COMPLETED)
        now = counter.value
        tell(now - seen)
        seen = now
        for future in done:
            future.result()


def _begin(counter: Any) -> None:
    global _shared  # noqa: PLW0603  (a process belongs to one pool)
    _shared = counter


def _run(job: Job) -> Done:
    waiting = 0

    def count(number: int) -> None:
        nonlocal waiting
        waiting += number
        if waiting >= AT_ONCE:
            flush()

    def flush() -> None:
        nonlocal waiting
        with _shared.get_lock():
            _shared.value += waiting
        waiting = 0

    done = run_job(job, count)
    flush()
    return done
