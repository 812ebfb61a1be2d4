"""EngineCoreProc: the engine core's busy loop, fed by one queue and speaking into an outbox.

It blocks while there is nothing to do, else drains its queue and makes a step. Clients neither
wait for it nor make it wait. What goes wrong with one request, or with a plugin, ends that request
or is told; only a failed runner ends the engine.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from queue import Empty
from typing import TYPE_CHECKING, Final

from attrs import define, field

from framework.engine.child.faults import PluginFaults
from framework.engine.child.owners import Owners
from framework.engine.child.receiving import NewRequest, PeerLost
from framework.engine.child.utilities import Utilities
from framework.engine.protocol import (
    Abort,
    Ended,
    Outputs,
    Refused,
    Shutdown,
    Stopped,
    Utility,
)
from framework.errors import PluginError, PolicyError, RequestError, StallError
from framework.stack import complete_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.engine.child.receiving import Incoming, InputQueue
    from framework.engine.child.sending import Outbox
    from framework.engine.core import EngineCore
    from framework.metrics import Recorder
    from framework.output import StepResult

IDLE_S: Final = 0.001
FAILING_S: Final = 0.5
"""Pause between steps that a plugin fails although there is no request left to end."""
TRANSFERS_S: Final = 10.0
"""How long a swap waits for transfers that still use blocks."""
MOST_FAILED_STEPS: Final = 3
"""Steps in a row that a plugin may fail, with nobody to blame it on, before all requests end."""
log = logging.getLogger("headway.process")


@define(eq=False)
class EngineCoreProc:
    """One engine core between an input queue and an outbox.

    Args:
        core: what is stepped.
        recorder: the plugin of its stack that keeps timelines.
        queue: what is to be done, in order.
        outbox: where results go.
    """

    core: EngineCore
    recorder: Recorder
    queue: InputQueue
    outbox: Outbox
    is_paused: bool = field(default=False, init=False)
    _owners: Owners = field(factory=Owners, init=False)
    _utilities: Utilities = field(init=False)
    _swaps: deque[tuple[bytes, Utility, float]] = field(factory=deque, init=False)
    """Asked for, and until when each may wait for transfers."""
    _is_draining: bool = field(default=False, init=False)
    _is_over: bool = field(default=False, init=False)
    _was_busy: bool = field(default=False, init=False)
    faults: PluginFaults = field(factory=PluginFaults, init=False)
    """What plugins failed at since the start."""

    def __attrs_post_init__(self) -> None:
        self._utilities = Utilities(self)

    def run_busy_loop(self) -> None:
        """Serve until told to stop.

        Raises:
            Exception: the runner, or the core itself, failed; all peers have been told.
        """
        try:
            while not self._is_over:
                self._take_input()
                self._swap_in_turn()
                if not self.is_paused and self.core.has_work:
                    self._step()
                self._note_idleness()
        except BaseException as error:
            self._stop(f"the engine failed: {type(error).__name__}: {error}", failed=True)
            raise

    # -----------------------------------------------------------------------------------------
    # input
    # -----------------------------------------------------------------------------------------

    def _take_input(self) -> None:
        """Block while there is nothing to do; then take everything that has come."""
        stands_still = self.is_paused or not self.core.has_work
        if stands_still and not self._swaps:
            self._handle(*self.queue.get())
        elif stands_still or self.core.is_idle or self.faults.num_failed_steps:
            self._wait(FAILING_S if self.faults.num_failed_steps and not self._owners else IDLE_S)
        for _ in range(self.queue.qsize()):  # what comes meanwhile must not put the step off
            if not self._is_over:
                self._handle(*self.queue.get())

    def _wait(self, seconds: float) -> None:
        """Something outside is awaited: look again then, or when something comes."""
        with suppress(Empty):
            self._handle(*self.queue.get(timeout=seconds))

    def _handle(self, peer: bytes, item: Incoming) -> None:
        if isinstance(item, NewRequest):
            self._add(peer, item)
        elif isinstance(item, Abort):
            for key in item.keys:  # unknown and ended ones are ignored
                if (name := self._owners.name(peer, key)) is not None:
                    self._end(name, "abort", None)
        elif isinstance(item, Utility) and item.name == "swap":
            self._swaps.append((peer, item, time.monotonic() + TRANSFERS_S))
            self._swap_in_turn()
        elif isinstance(item, Utility):
            self.outbox.put(peer, self._utilities.call(item))
        elif isinstance(item, PeerLost):
            for name in self._owners.of(peer):
                self._end(name, "abort", None)
        elif isinstance(item, Shutdown):
            self._shut_down(drain=item.drain)

    def _add(self, peer: bytes, new: NewRequest) -> None:
        self.outbox.wave = max(self.outbox.wave, new.request_wave)
        request = new.request
        if self._owners.name(peer, new.key) is not None:
            return self.outbox.put(peer, Refused(f"key: {new.key} is in use by a request"))
        if self._is_draining:
            return self._refuse(peer, new.key, "abort", "the engine is shutting down")
        try:
            self.core.add(request)
        except RequestError as error:
            return self._refuse(peer, new.key, "rejected", str(error))
        except PolicyError as error:
            self.faults.note(error)
            return self._refuse(peer, new.key, "error", str(error))
        timeline = self.recorder.track(request)
        self._owners.add(request.request_id, peer, new.key, timeline)
        return None

    def _refuse(self, peer: bytes, key: int, reason: str, error: str) -> None:
        self.outbox.put(peer, Outputs([], [], [Ended(key, reason, error=error)]))

    def _end(self, name: str, reason: str, error: str | None) -> None:
        """Take a request out of the core and tell its owner."""
        try:
            self.core.abort(name)
        except PolicyError as failed:  # it is out of the books all the same
            self.faults.note(failed)
        owned = self._owners.forget(name)
        if owned is not None:
            self.outbox.put(owned.peer, Outputs([], [], [owned.ended(reason, None, error)]))

    # -----------------------------------------------------------------------------------------
    # steps
    # -----------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._was_busy = True
        try:
            result = self.core.step()
        except PolicyError as error:
            self._survive(error)
        except StallError as error:
            self._end_blamed(error.request_id, str(error))
        else:
            self.faults.num_failed_steps = 0
            if result is not None:
                self._tell(result)

    def _tell(self, result: StepResult) -> None:
        """Each peer gets what its requests got."""
        for peer, message in self._owners.outputs(result).items():
            self.outbox.put(peer, message)

    def _survive(self, error: PolicyError) -> None:
        """A plugin failed: what was computed is told; who cannot be planned is ended."""
        self.faults.note(error)
        if error.result is not None:
            self.faults.num_failed_steps = 0
            return self._tell(error.result)
        if error.request_id in self._owners:
            return self._end_blamed(error.request_id, str(error))
        self.faults.num_failed_steps += 1
        if self.faults.num_failed_steps >= MOST_FAILED_STEPS and self._owners:
            self._end_blamed(None, str(error))
        return None

    def _end_blamed(self, name: str | None, why: str) -> None:
        """End the request that is to blame, or all of them if nobody is known."""
        blamed = [name] if name in self._owners else list(self._owners)
        log.error("%d requests end with an error: %s", len(blamed), why)
        for one in blamed:
            assert one is not None
            self._end(one, "error", why)

    def _note_idleness(self) -> None:
        """A wave of requests ends when nothing is left."""
        if self._was_busy and not self.core.has_work:
            self._was_busy = False
            self.outbox.wave += 1
        is_stuck = self.faults.num_failed_steps and not self._owners
        if self._is_draining and (is_stuck or not self.core.has_work):
            self._stop("it was shut down", failed=False)

    # -----------------------------------------------------------------------------------------
    # the stack
    # -----------------------------------------------------------------------------------------

    @property
    def plugins(self) -> list[str]:
        """The names of the stack, last asked first."""
        return [name for name, one in self.core.scheduler.plugins if one is not self.recorder]

    def _swap_in_turn(self) -> None:
        """Make the swaps that are asked for; while transfers use blocks they wait, steps do not."""
        while self._swaps:
            peer, asked, patience = self._swaps[0]
            if self.core.scheduler.has_transfers and time.monotonic() < patience:
                return
            self._swaps.popleft()
            self.outbox.put(peer, self._utilities.call(asked))

    def swap(self, specs: Sequence[str]) -> None:
        """Put another stack in place of this one.

        Raises:
            PluginError, HeadwayError: it cannot be used; the old one stays.
        """
        stack = [*complete_stack(specs), self.recorder]
        if self.core.scheduler.has_transfers:
            raise PluginError(
                f"swap: after {TRANSFERS_S:.0f} s transfers of external KV, or may_release of a "
                "plugin, still hold blocks of the old stack; it stays"
            )
        try:
            self.core.swap(stack)
        finally:  # told at once: the next message may end a request and use its name again
            for result in self.core.take_early():
                self._tell(result)

    # -----------------------------------------------------------------------------------------
    # the end
    # -----------------------------------------------------------------------------------------

    def _shut_down(self, *, drain: bool) -> None:
        self._is_draining = True
        self.is_paused = False
        if not drain:
            for name in list(self._owners):
                self._end(name, "abort", "the engine was shut down")
            self._stop("it was shut down", failed=False)

    def _stop(self, reason: str, *, failed: bool) -> None:
        self._is_over = True
        for peer in list(self.outbox.peers):
            self.outbox.put(peer, Stopped(reason, failed))
