"""Compile launches in several processes; one that kills its process takes no other with it."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from attrs import frozen

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


def compile_all(
    specs: Sequence[Spec], jobs: int, advance: Callable[[], None]
) -> list[tuple[Spec, Outcome]]:
    """Compile all in `jobs` processes; `advance` is called after each.

    The compiler may end its process, and with it the pool. What is left is then compiled one
    launch a process.
    """
    outcomes: dict[int, Outcome] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        places = {pool.submit(compile_spec, spec): place for place, spec in enumerate(specs)}
        for future in as_completed(places):
            if not isinstance(future.exception(), BrokenProcessPool):
                outcomes[places[future]] = future.result()
                advance()
    for place in range(len(specs)):
        if place not in outcomes:
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                try:
                    outcomes[place] = pool.submit(compile_spec, specs[place]).result()
                except BrokenProcessPool:
                    outcomes[place] = Outcome({}, "the compiler ended its process")
            advance()
    return [(spec, outcomes[place]) for place, spec in enumerate(specs)]
