"""Compare a replay with its recording, field by field, up to the first difference.

Which block bears which number is the pool's own affair, so block ids compare under one bijection
for the whole run. It grows as blocks appear: in tables, in the free queue, in calls to external
KV. A block that would need two partners, or one that the pool has not, is a difference.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from attrs import frozen

from framework.errors import HeadwayError
from framework.testing.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BLOCK_LISTS: Final = re.compile(
    r"schedule\.new\[\d+]\.block_ids|schedule\.cached\[\d+]\.new_block_ids|after_\w+\.free_queue"
)
BLOCK_SETS: Final = re.compile(r"after_\w+\.reusable_blocks")
CALLS: Final = re.compile(r"(update\.)?connector\[\d+]")
STATES: Final = re.compile(r"after_\w+\.requests\..+")
IN_ORDER: Final = re.compile(r"schedule\.num_scheduled_tokens|update\.(sampled|outputs|drafts)")
NOTHING: Final = "nothing"


@frozen
class Difference:
    """The first field in which a replay departs from its recording.

    Attributes:
        scenario: name of the recording.
        step: number of the step; the number of steps for what is known at the end alone.
        field: path of the field, as in `schedule.num_scheduled_tokens.r3`.
        ours, recorded: the two values.
    """

    scenario: str
    step: int
    field: str
    ours: Any
    recorded: Any

    def __str__(self) -> str:
        return f"step {self.step}, {self.field}: ours {self.ours!r}, recorded {self.recorded!r}"


class Mismatch(NamedTuple):
    """A field and its two values."""

    field: str
    ours: Any
    recorded: Any


def compare(recording: Mapping[str, Any]) -> Difference | None:
    """Replay a recording and find the first field that differs; None if all are equal.

    An error of ours (a refused request, a stall) is a difference of the field `error`.

    Raises:
        HeadwayError: the recording's config cannot be built.
    """
    name, recorded = recording["name"], recording["steps"]
    replay = Replay(recording)
    usable = range(1, recording["config"]["num_blocks"])  # block 0 is reserved
    comparison = Comparison(recording["request_state_fields"], usable)
    try:
        for ours in replay:
            if replay.step >= len(recorded):
                more = f"more than {len(recorded)}"
                return Difference(name, replay.step, "num_steps", more, len(recorded))
            mismatch = comparison.find("", ours, recorded[replay.step])
            if mismatch is not None:
                return Difference(name, replay.step, *mismatch)
    except HeadwayError as error:
        return Difference(name, replay.step, "error", str(error), NOTHING)
    if replay.step < len(recorded):
        return Difference(name, replay.step, "num_steps", replay.step, len(recorded))
    totals = {"num_steps": replay.step, "end": replay.end, "final": replay.final()}
    mismatch = comparison.find("", totals, {field: recording[field] for field in totals})
    return None if mismatch is None else Difference(name, replay.step, *mismatch)


class Comparison:
    """Finds mismatches in the steps of one run; keeps the bijection of its blocks."""

    def __init__(self, state_fields: Sequence[str], usable: range) -> None:
        self._state_fields = state_fields
        self._usable = usable
        self._recorded_of: dict[int, int] = {}
        self._ours_of: dict[int, int] = {}
        self._special = (
            (BLOCK_LISTS, self._find_in_blocks),
            (BLOCK_SETS, self._find_in_set),
            (CALLS, self._find_in_call),
        )

    def find(self, field: str, ours: Any, recorded: Any) -> Mismatch | None:
        """The first mismatch at or below a field."""
        for pattern, find in self._special:
            if pattern.fullmatch(field):
                return find(field, ours, recorded)
        if STATES.fullmatch(field) and self._is_state(recorded):
            ours = dict(zip(self._state_fields, ours, strict=True))
            recorded = dict(zip(self._state_fields, recorded, strict=True))
        if isinstance(ours, dict) and isinstance(recorded, dict):
            return self._find_in_mapping(field, ours, recorded)
        if isinstance(ours, list) and isinstance(recorded, list) and len(ours) == len(recorded):
            pairs = enumerate(zip(ours, recorded, strict=True))
            found = (self.find(f"{field}[{index}]", *pair) for index, pair in pairs)
            return next((mismatch for mismatch in found if mismatch is not None), None)
        same = type(ours) is type(recorded) and ours == recorded
        return None if same else Mismatch(field, ours, recorded)

    def _is_state(self, recorded: Any) -> bool:
        return isinstance(recorded, list) and len(recorded) == len(self._state_fields)

    def _find_in_mapping(
        self, field: str, ours: dict[str, Any], recorded: dict[str, Any]
    ) -> Mismatch | None:
        if IN_ORDER.fullmatch(field) and list(ours) != list(recorded):
            return Mismatch(f"{field} (order)", list(ours), list(recorded))
        for key in [*recorded, *(key for key in ours if key not in recorded)]:
            path = f"{field}.{key}" if field else key
            if key not in ours or key not in recorded:
                return Mismatch(path, ours.get(key, NOTHING), recorded.get(key, NOTHING))
            mismatch = self.find(path, ours[key], recorded[key])
            if mismatch is not None:
                return mismatch
        return None

    def _is_block(self, value: Any) -> bool:
        return type(value) is int and value in self._usable

    def _find_in_blocks(self, field: str, ours: Sequence[int], recorded: Any) -> Mismatch | None:
        if not isinstance(recorded, list):
            return Mismatch(field, ours, recorded)
        if len(ours) != len(recorded):
            return Mismatch(f"{field} (how many)", len(ours), len(recorded))
        for index, (block, partner) in enumerate(zip(ours, recorded, strict=True)):
            if not self._is_block(partner):
                return Mismatch(f"{field}[{index}]", f"block {block}", partner)
            expected = self._recorded_of.setdefault(block, partner)
            taken_by = self._ours_of.setdefault(partner, block)
            if expected != partner or taken_by != block:
                told = f"block {block} (known as recorded block {expected})"
                return Mismatch(f"{field}[{index}]", told, f"block {partner} (ours: {taken_by})")
        return None

    def _find_in_set(self, field: str, ours: Sequence[int], recorded: Any) -> Mismatch | None:
        """Blocks that never stood in a table or in the queue have no partner, and differ."""
        if not isinstance(recorded, list) or not all(map(self._is_block, recorded)):
            return Mismatch(field, ours, recorded)
        as_recorded = {self._recorded_of.get(block, f"our block {block}") for block in ours}
        if len(ours) == len(recorded) and as_recorded == set(recorded):
            return None
        return Mismatch(field, sorted(as_recorded, key=str), sorted(recorded, key=str))

    def _find_in_call(self, field: str, ours: Sequence[Any], recorded: Any) -> Mismatch | None:
        """A look-up, or ["allocated" or "finished", id, block ids, one more value]."""
        if not isinstance(recorded, list):
            return Mismatch(field, ours, recorded)
        if ours[:2] != recorded[:2] or ours[3:] != recorded[3:]:
            return Mismatch(field, ours, recorded)
        if recorded[0] == "lookup":
            return None if ours == recorded else Mismatch(field, ours, recorded)
        return self._find_in_blocks(f"{field}.{recorded[0]}", ours[2], recorded[2])
