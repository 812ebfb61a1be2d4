"""PluginFaults: what plugins failed at while an engine served, counted and logged."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Final

from attrs import define

if TYPE_CHECKING:
    from framework.errors import PolicyError

NUM_FRAMES: Final = 3
"""Of a plugin's traceback that are logged, innermost last."""
log = logging.getLogger("headway.process")


@define(eq=False)
class PluginFaults:
    """Counts, and the newest sentence.

    Attributes:
        num_errors: failures since the start.
        last_error: what the newest one says.
        num_failed_steps: steps in a row that could not be planned, with nobody to blame.
    """

    num_errors: int = 0
    last_error: str | None = None
    num_failed_steps: int = 0

    def note(self, error: PolicyError) -> None:
        """The log shows where a plugin failed; again only when it fails otherwise."""
        is_new = str(error) != self.last_error
        self.num_errors += 1
        self.last_error = str(error)
        log.error("%s%s", error, _last_frames(error) if is_new else "")


def _last_frames(error: PolicyError) -> str:
    cause = error.__cause__
    if cause is None:
        return ""
    return "\n" + "".join(traceback.format_exception(cause, limit=-NUM_FRAMES)).rstrip()
