"""Difference: the first step in which two recorded policies part, and what each saw there.

Two steps are the same if they hand the same tokens to the same requests in the same order, take
the place from the same victims, and shed the same requests. Times may differ all along.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from attrs import frozen

from framework.plan import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework.study.recorded import Recorded

MOST_NAMED = 8


@frozen
class Difference:
    """Where two recordings part.

    Attributes:
        num_same: steps that both began with.
        steps: the step after them of each, or None where one has ended; both None: they never part.
        notes: sentences on what differs between the runs besides the policy.
    """

    num_same: int
    steps: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
    notes: Sequence[str]

    @property
    def parts(self) -> bool:
        """Whether they part at all."""
        return any(step is not None for step in self.steps)

    def rows(self) -> list[tuple[str, str, str]]:
        """(what, of one, of the other): what each saw and what each decided."""
        one, other = (step or {} for step in self.steps)
        columns = [
            (_saw(step) | _decided(step, than)) if step else {}
            for step, than in ((one, other), (other, one))
        ]
        names = list(dict.fromkeys(name for column in columns for name in column))
        return [
            (name, *(column.get(name, "-") for column in columns))  # type: ignore[misc]
            for name in names
        ]


def find_difference(one: Recorded, other: Recorded) -> Difference:
    """Go through two recordings until they part."""
    num_same = 0
    steps: tuple[Any, Any] = (None, None)
    for pair in zip_longest(one.steps(), other.steps()):
        if None in pair or _decisions(pair[0]) != _decisions(pair[1]):
            steps = pair
            break
        num_same += 1
    return Difference(num_same, steps, _notes(one.header, other.header))


def _decisions(step: Mapping[str, Any]) -> tuple[Any, ...]:
    victims = [victim[:2] for victim in step.get("victims", ())]
    return list(step.get("plan", {}).items()), victims, _shed(step)


def _shed(step: Mapping[str, Any]) -> list[str]:
    return [name for name, how, *_ in step.get("ended", ()) if how == "rejected"]


def _notes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    notes = []
    if one["workload"]["digest"] != other["workload"]["digest"]:
        names = one["workload"]["name"], other["workload"]["name"]
        notes.append(f"the workloads are not the same: {names[0]}, {names[1]}")
    for part in ("config", "latency", "options"):
        before, now = one[part], other[part]
        changed = [name for name in before | now if before.get(name) != now.get(name)]
        notes += [f"{part}: {name}: {before.get(name)}, {now.get(name)}" for name in changed]
    return notes


def _saw(step: Mapping[str, Any]) -> dict[str, str]:
    queue, waiting = step.get("queue", ()), step["waiting"]
    rows = {
        "time": f"{step['time']:.6f} s",
        "running": str(step["running"]),
        "waiting": f"{waiting}: {_list(queue, waiting)}" if queue else str(waiting),
    }
    return rows | ({"free blocks": str(step["free"])} if "free" in step else {})


def _decided(step: Mapping[str, Any], than: Mapping[str, Any]) -> dict[str, str]:
    """What this step did; of the tokens handed out only what the other one did not."""
    plan, other = step.get("plan", {}), than.get("plan", {})
    own = [f"{name} {count}" for name, count in plan.items() if other.get(name) != count]
    same = len(plan) - len(own)
    if not own and plan.keys() == other.keys() and list(plan) != list(other):
        pairs = enumerate(zip(plan, other, strict=True))
        first = next(place for place, (name, others) in pairs if name != others)
        own = [f"{name} as number {place + 1}" for place, name in enumerate(plan)][first:]
    admitted = [
        f"{name} ({cached} cached)" if cached else name
        for name, cached, _ in step.get("admitted", ())
    ]
    refused = [f"{name}: {Refusal[why].value}" for name, why in step.get("refused", {}).items()]
    victims = [
        f"{name} ({mode}, {lost} tokens lost{', displaced' if displaced else ''})"
        for name, mode, lost, displaced in step.get("victims", ())
    ]
    rows = {
        "tokens handed to both alike": str(same),
        "tokens handed otherwise": _list(own, len(own)),
        "admitted": _list(admitted, len(admitted)),
        "refused": _list(refused, len(refused)),
        "victims": _list(victims, len(victims)),
        "shed": _list(_shed(step), len(_shed(step))),
        "budget left": str(step["left"]),
    }
    if "used" in step:
        rows["blocks in use after"] = str(step["used"])
    return {name: value for name, value in rows.items() if value}


def _list(names: Sequence[str], count: int) -> str:
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown}, ..." if count > MOST_NAMED else shown
