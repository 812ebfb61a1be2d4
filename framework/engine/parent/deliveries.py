"""Deliveries: the open streams of one front, and what the engine sends for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from framework.engine.parent.streams import Stream
from framework.output import TokenLogprobs

if TYPE_CHECKING:
    from framework.engine.completion import LiveRequest
    from framework.engine.protocol import Ended, Outputs


@define(eq=False)
class Deliveries:
    """Streams by key and by request id.

    Attributes:
        send_abort: tells the engine that nobody reads a request on.
        on_end: told of each stream that is not open any more.
    """

    send_abort: Callable[[int], None]
    on_end: Callable[[], None]
    _streams: dict[int, Stream] = field(factory=dict, init=False)
    _names: dict[str, int] = field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._names

    def add(self, key: int, live: LiveRequest) -> Stream:
        """A request has been sent."""
        self._names[live.request.request_id] = key
        stream = self._streams[key] = Stream(key, live, self._abort)
        return stream

    def leave(self, request_id: str) -> bool:
        """End a request by name; False if there is none."""
        key = self._names.get(request_id)
        if key is None:
            return False
        self._abort(key)
        return True

    def _abort(self, key: int) -> None:
        if key in self._streams:
            self._end(key, "abort", None, None)
            self.send_abort(key)

    def take(self, outputs: Outputs) -> None:
        """What a step gave; what comes for a stream that was left is dropped."""
        now = time.monotonic()
        for one in outputs.admitted:
            if (stream := self._streams.get(one.key)) is not None:
                stream.timeline.first_admission = one.first_admission
                stream.timeline.num_cached_tokens = one.num_cached_tokens
        for key, token_ids in zip(outputs.keys, outputs.token_ids, strict=True):
            stream = self._streams.get(key)
            if stream is None:
                continue
            logprobs = [
                TokenLogprobs(one.logprob, one.rank, one.top)
                for one in outputs.logprobs.get(key, ())
            ]
            if stream.live.take(token_ids, logprobs, now):
                text = stream.live.text
                self._end(key, "stop", None if text is None else text.stopped_by, None)
                self.send_abort(key)
            stream.wake()
        for ended in outputs.ended:
            self._take_end(ended)

    def _take_end(self, ended: Ended) -> None:
        stream = self._streams.get(ended.key)
        if stream is None:
            return
        line = stream.timeline
        line.first_admission = ended.first_admission
        line.num_cached_tokens = ended.num_cached_tokens
        line.num_preemptions = ended.num_preemptions
        line.preempted_s = ended.preempted_s
        self._end(ended.key, ended.reason, ended.stop_reason, ended.error)

    def _end(self, key: int, reason: str, stop_reason: int | str | None, error: str | None) -> None:
        stream = self._forget(key)
        stream.live.end(reason, stop_reason, error, time.monotonic())
        stream.wake()

    def _forget(self, key: int) -> Stream:
        stream = self._streams.pop(key)
        del self._names[stream.request_id]
        self.on_end()
        return stream

    def lose(self, why: str) -> None:
        """There is no engine any more: every reader hears it."""
        for key in list(self._streams):
            self._forget(key).fail(why)
