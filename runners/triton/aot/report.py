"""Judge compiled kernels, and write their figures so that two reports can be compared by line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
from attrs import frozen

from runners.triton.configs import known_arch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from runners.triton.aot.compiling import Outcome
    from runners.triton.aot.figures import Figures
    from runners.triton.aot.specs import Spec

READS_CACHE = {"paged_attention_kernel", "split_decode_kernel"}
"""Their time is that of loading keys and values."""


@frozen
class Verdict:
    """What was found of all launches.

    Attributes:
        rows: of the report, sorted.
        num_spills, num_over: kernels that spill, and that need more shared memory than there is.
        complaints: a sentence for each thing that is wrong.
    """

    rows: list[dict[str, object]]
    num_spills: int
    num_over: int
    complaints: list[str]

    def summary(self) -> str:
        """The closing line."""
        others = len(self.complaints) - self.num_spills - self.num_over
        line = f"{len(self.rows)} kernels, {self.num_spills} spills, {self.num_over} over"
        return f"{line}, {others} other complaints" if others else line


def judge(outcomes: Sequence[tuple[Spec, Outcome]]) -> Verdict:
    """Everything that is wrong, and the rows of the report.

    Kernels that a table row does not change, as the merge of splits, are in the report once.
    """
    rows, spills, over, others = [], [], [], []
    seen: set[str] = set()
    for spec, outcome in outcomes:
        if outcome.error:
            others.append(f"{name(spec, spec.kernel)}: {outcome.error}")
        for kernel, figures in outcome.kernels.items():
            alike = f"{kernel} {spec.arch} {figures}"
            if kernel not in READS_CACHE and alike in seen:
                continue
            seen.add(alike)
            rows.append(row(spec, kernel, figures))
            limit = known_arch(spec.arch).shared_bytes
            if figures.spill_bytes:
                spills.append(f"{name(spec, kernel)} spills {figures.spill_bytes} bytes a thread")
            if figures.shared_bytes > limit:
                over.append(
                    f"{name(spec, kernel)} needs {figures.shared_bytes} bytes of shared memory;"
                    f" {spec.arch} has {limit}"
                )
            others += missing(spec, kernel, figures)
    rows.sort(key=lambda row: json.dumps([row[key] for key in ("kernel", "arch", "case")]))
    return Verdict(rows, len(spills), len(over), sorted([*spills, *over, *others]))


def missing(spec: Spec, kernel: str, figures: Figures) -> Iterator[str]:
    """Instructions that make an attention kernel fast; float32 is served, but not fast."""
    if kernel not in READS_CACHE or spec.config is None or spec.dtype == "float32":
        return
    # sinks are loaded with 16 bits, a few times
    if figures.instructions["loads_128"] <= figures.instructions["loads_16"]:
        yield f"{name(spec, kernel)} loads keys and values with less than 128 bits a thread"
    large = kernel == "paged_attention_kernel" and spec.config.block_m >= 64
    if spec.arch == "sm_90" and large and not figures.instructions["wgmma"]:
        yield f"{name(spec, kernel)} multiplies its large tiles without wgmma"


def name(spec: Spec, kernel: str) -> str:
    """How a row is called in a sentence."""
    return f"{kernel} on {spec.arch} ({spec.case})" if spec.case else f"{kernel} on {spec.arch}"


def row(spec: Spec, kernel: str, figures: Figures) -> dict[str, object]:
    """A row of the report."""
    config = attrs.asdict(spec.config) if spec.config else None
    labels = {"kernel": kernel, "arch": spec.arch, "case": spec.case, "config": config}
    return labels | attrs.asdict(figures)


def write_report(path: Path, verdict: Verdict, triton_version: str, seconds: float) -> None:
    """One row a line; only the line of the seconds differs between two runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join("  " + json.dumps(row) for row in verdict.rows)
    path.write_text(
        f'{{\n"triton": "{triton_version}",\n"seconds": {seconds:.0f},\n"rows": [\n{lines}\n]\n}}\n'
    )
