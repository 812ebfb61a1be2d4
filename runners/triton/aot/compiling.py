"""Compile launches in several processes; one that kills its process takes no other with it."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from runners.triton.aot.absent import compile_launch
from runners.triton.aot.figures import Figures, read_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runners.triton.aot.specs import Spec


@frozen
class Outcome:
    """What became of a launch: the figures of each kernel in it by name, or an error."""

    kernels: dict[str, Figures]
    error: str = ""


def compile_spec(spec: Spec) -> Outcome:
    """Compile one launch in this process."""
    try:
        kernels = compile_launch(spec.launch, spec.arch)
        return Outcome({kernel.name: read_figures(kernel) for kernel in kernels})
    except Exception as error:
        return Outcome({}, f"{type(error).__name__}: {error}")


@define(eq=False)
class Compilers:
    """A pool of processes that compile, for use in a `with` statement."""

    jobs: int
    _pool: ProcessPoolExecutor | None = field(default=None, init=False)

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def compile(
        self, specs: Sequence[Spec], advance: Callable[[], object] = int
    ) -> list[tuple[Spec, Outcome]]:
        """Compile all; `advance` is called after each.

        The compiler may end its process, and with it the pool. What is left is then compiled one
        launch a process.
        """
        if self._pool is None:
            self._pool = make_pool(self.jobs)
        places = {self._pool.submit(compile_spec, spec): place for place, spec in enumerate(specs)}
        outcomes: dict[int, Outcome] = {}
        for future in as_completed(places):
            if not isinstance(future.exception(), BrokenProcessPool):
                outcomes[places[future]] = future.result()
                advance()
        for place in sorted(set(places.values()) - set(outcomes)):
            self._pool = None
            outcomes[place] = compile_alone(specs[place])
            advance()
        return [(spec, outcomes[place]) for place, spec in enumerate(specs)]


def make_pool(jobs: int) -> ProcessPoolExecutor:
    """Started afresh, not forked: a process that has used a GPU cannot be forked."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))


def compile_alone(spec: Spec) -> Outcome:
    """In a process that may die."""
    with make_pool(1) as pool:
        try:
            return pool.submit(compile_spec, spec).result()
        except BrokenProcessPool:
            return Outcome({}, "the compiler ended its process")
