"""The tuner's search, with times and compilers that are invented: it needs no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

pytest.importorskip("triton", reason="the kernels need triton")

import torch

from runners.triton.aot.compiling import Compilers
from runners.triton.configs import ARCHS, AttentionConfig, Situation, table
from runners.triton.tuner.bench import Bench
from runners.triton.tuner.machine import ThisMachine
from runners.triton.tuner.search import Search, candidates, distance, visiting_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OLD = AttentionConfig(16, 64, 4, 3)
FAST = AttentionConfig(16, 32, 8, 2)
ROW = Situation("sm_90", 128, 4, "bfloat16", "decode")
OTHER = Situation("sm_80", 128, 4, "bfloat16", "decode")


@attrs.define(eq=False)
class InventedMachine:
    """Times by a formula; each takes a second of its clock, and so does a batch of compiles."""

    formula: Callable[[Situation, AttentionConfig], float]
    compiles: Callable[[AttentionConfig], bool] = lambda _: True
    accepts: Callable[[AttentionConfig], bool] = lambda _: True
    now: float = 100.0
    timed: list[tuple[Situation, AttentionConfig]] = attrs.field(factory=list, init=False)

    def compiling(
        self, situation: Situation, configs: Sequence[AttentionConfig]
    ) -> list[AttentionConfig]:
        self.now += 1
        return [config for config in configs if self.compiles(config)]

    def time(self, situation: Situation, config: AttentionConfig) -> float:
        self.now += 1
        self.timed.append((situation, config))
        return self.formula(situation, config)

    def acceptable(self, situation: Situation, config: AttentionConfig) -> bool:
        return self.accepts(config)

    def search(self, rows: dict[Situation, AttentionConfig]) -> Search:
        return Search(rows, self, batch=8, clock=lambda: self.now)


def planted(_: Situation, config: AttentionConfig) -> float:
    """The further from FAST the slower."""
    return 100 + 10 * distance(config, FAST)


def unmeasurable(_: Situation, config: AttentionConfig) -> float:
    """The best cannot be launched."""
    if config == FAST:
        raise RuntimeError("out of resources")
    return 110 + 10 * distance(config, FAST)


def test_the_fastest_sizes_are_found_and_replace_the_row() -> None:
    rows = {ROW: OLD, OTHER: OLD}
    machine = InventedMachine(planted)
    (finding,) = machine.search(rows).run("sm_90", seconds=10_000)
    assert rows == {ROW: FAST, OTHER: OLD}
    assert finding.old_time == planted(ROW, OLD)
    assert finding.new_time == 100
    assert finding.num_left == 0
    assert machine.timed[0] == (ROW, OLD)
    assert len(machine.timed) == len(set(machine.timed)) == finding.num_tried + 1


def test_a_finding_reads_as_a_line() -> None:
    (finding,) = InventedMachine(planted).search({ROW: OLD}).run("sm_90", seconds=10_000)
    assert str(finding) == (
        "sm_90 decode head_dim 128 group 4 bfloat16: 130.0 us -> 100.0 us, 1.30x"
        f" (16, 32, 8, 2; {finding.num_tried} of {finding.num_tried} tried)"
    )


def test_a_gain_within_the_noise_changes_nothing() -> None:
    rows = {ROW: OLD}
    machine = InventedMachine(lambda _, config: 100 + 0.1 * distance(config, FAST))
    (finding,) = machine.search(rows).run("sm_90", seconds=10_000)
    assert rows == {ROW: OLD}
    assert finding.new_time == finding.old_time
    assert "as it was" in str(finding)


def test_sizes_that_do_not_compile_are_not_timed() -> None:
    rows = {ROW: OLD}
    machine = InventedMachine(planted, compiles=lambda config: config != FAST)
    list(machine.search(rows).run("sm_90", seconds=10_000))
    assert (ROW, FAST) not in machine.timed
    assert distance(rows[ROW], FAST) == 1


def test_sizes_that_cannot_be_launched_are_passed_over() -> None:
    rows = {ROW: OLD}
    list(InventedMachine(unmeasurable).search(rows).run("sm_90", seconds=10_000))
    assert distance(rows[ROW], FAST) == 1


def test_the_fastest_row_that_would_not_pass_the_check_is_not_taken() -> None:
    rows = {ROW: OLD}
    machine = InventedMachine(planted, accepts=lambda config: config.num_warps < 8)
    list(machine.search(rows).run("sm_90", seconds=10_000))
    assert rows[ROW] == AttentionConfig(16, 32, 4, 2)


def test_an_old_row_that_cannot_be_launched_is_replaced() -> None:
    rows = {ROW: FAST}
    list(InventedMachine(unmeasurable).search(rows).run("sm_90", seconds=10_000))
    assert distance(rows[ROW], FAST) == 1


def test_time_is_shared_and_what_it_did_not_reach_is_told() -> None:
    machine = InventedMachine(planted)
    search = machine.search(dict(table()))
    findings = list(search.run("sm_90", seconds=200))
    assert len(findings) + len(search.unreached) == 36
    assert machine.now <= 320
    assert all(finding.num_left > 0 for finding in findings)
    assert {finding.situation for finding in findings}.isdisjoint(search.unreached)
    assert len(findings) > 15


def test_without_time_nothing_is_tried() -> None:
    search = InventedMachine(planted).search({ROW: OLD})
    assert list(search.run("sm_90", seconds=0)) == []
    assert search.unreached == [ROW]


def test_float16_starts_from_what_bfloat16_found() -> None:
    half = attrs.evolve(ROW, dtype="float16")
    machine = InventedMachine(planted)
    list(machine.search({ROW: OLD, half: OLD}).run("sm_90", seconds=10_000))
    assert [config for row, config in machine.timed if row == half][:2] == [OLD, FAST]


def test_the_usual_rows_are_visited_first() -> None:
    order = visiting_order([row for row in table() if row.arch == "sm_90"])
    assert order[0] == ROW
    assert order[1] == attrs.evolve(ROW, dtype="float16")
    assert {row.head_dim for row in order[:12]} == {128}
    assert order[-1] == Situation("sm_90", 256, 1, "float16", "prefill")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("arch", ["gfx942", "sm_90"])
def test_candidates_may_fit_and_the_nearest_come_first(arch: str, phase: str) -> None:
    row = Situation(arch, 128, 4, "bfloat16", phase)
    found = candidates(row, table()[row])
    assert found[0] == table()[row]
    assert len(found) == len(set(found)) > 10
    steps = [distance(config, found[0]) for config in found]
    assert steps == sorted(steps)
    assert all(config.shared_bound(128, 2) <= 2 * ARCHS[arch].shared_bytes for config in found)
    wide = attrs.evolve(row, head_dim=256)
    assert len(candidates(wide, table()[wide])) < len(found)


def test_candidates_are_compiled_and_judged_as_rows_are() -> None:
    row = Situation("gfx942", 64, 1, "bfloat16", "prefill")
    good, too_large = AttentionConfig(16, 32, 4, 2), AttentionConfig(16, 128, 4, 5)
    with Compilers(1) as compilers:
        machine = ThisMachine(compilers, Bench(torch.device("cpu"), 4, lambda _: 0.0))
        assert machine.compiling(row, [too_large, good]) == [good]
        assert machine.acceptable(row, good)
        assert not machine.acceptable(row, too_large)
