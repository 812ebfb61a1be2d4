"""The figures that are aimed at on one H200, beside what was measured.

Derived from the data sheet, see docs/performance.md: 4.8 TB/s of memory, 989 TFLOPS in bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DATA_SHEET_TB_S = 4.8


@frozen
class Goal:
    """A figure of an item of a part.

    Attributes:
        title: what it is, for people.
        place: part, item and figure in gpu.json.
        unit: of all three figures.
        accept, stretch: the least that is good, and what is hoped for; the most, if `is_most`.
    """

    title: str
    place: tuple[str, str, str]
    unit: str
    accept: float
    stretch: float
    is_most: bool = False

    def verdict(self, value: float) -> str:
        """Which of the two goals is reached."""
        sign = -1 if self.is_most else 1
        if sign * value >= sign * self.stretch:
            return "stretch"
        return "accept" if sign * value >= sign * self.accept else "short"


def _decode(requests: int, length: int, accept: float, stretch: float) -> Goal:
    title = f"decode attention, {requests} x {length // 1024}K"
    place = "bandwidth", f"decode {requests} x {length}", "tb_s"
    return Goal(title, place, "TB/s", accept, stretch)


def _model(size: str, batch: int, accept: float, stretch: float) -> Goal:
    place = "decode", f"{size} {batch} x 1024", "tokens_s"
    return Goal(f"{size}, batch {batch}, context 1K", place, "tok/s", accept, stretch)


def _idle(size: str, accept: float, stretch: float) -> Goal:
    place = "decode", f"{size} idle", "idle_share"
    return Goal(f"GPU idle between steps, {size}", place, "", accept, stretch, True)


GOALS = (
    _decode(32, 4096, 3.12, 3.84),
    _decode(64, 4096, 3.12, 3.84),
    _decode(8, 4096, 2.16, 2.88),
    _decode(1, 32768, 1.68, 2.30),
    _decode(1, 131072, 1.68, 2.30),
    Goal("prefill attention, 8K", ("bandwidth", "prefill 8192", "tflops"), "TFLOPS", 300, 400),
    _model("8B", 1, 240, 270),
    _model("1B", 1, 870, 1160),
    _model("8B", 64, 8500, 9750),
    _idle("8B", 0.05, 0.02),
    _idle("1B", 0.15, 0.02),
    Goal(
        "scheduler, 256 running", ("decode", "1B 256 x 128", "scheduler_us"), "us", 300, 100, True
    ),
)


def compare(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Every goal with what was found for it; `found` is {part: {item: {figure: value}}}."""
    rows = []
    for goal in GOALS:
        part, item, figure = goal.place
        value = found.get(part, {}).get(item, {}).get(figure)
        rows.append(
            {
                "title": goal.title,
                "unit": goal.unit,
                "accept": goal.accept,
                "stretch": goal.stretch,
                "measured": value,
                "verdict": "not measured" if value is None else goal.verdict(value),
            }
        )
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """For a terminal."""
    lines = [f"{'goal':32}{'measured':>12}{'accept':>10}{'stretch':>10}  unit    verdict"]
    for row in rows:
        measured = "-" if row["measured"] is None else f"{row['measured']:.4g}"
        lines.append(
            f"{row['title']:32}{measured:>12}{row['accept']:>10g}{row['stretch']:>10g}"
            f"  {row['unit']:8}{row['verdict']}"
        )
    return "\n".join(lines)
