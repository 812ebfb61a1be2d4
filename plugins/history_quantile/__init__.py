"""Predicts output lengths from those of requests that have ended.

The newest `window` lengths of each group are kept in order; groups are all requests, those of one
tenant, or those whose prompts have the same number of binary digits. The prediction is a quantile
of the lengths that exceed what the request has given so far, so it grows while a request outlives
others. A group with fewer than `least` lengths uses those of everybody, and where these are too
few as well nothing is predicted. Ends by abort, rejection and error do not count.
Source: the conditional history of Gong et al., "Past-Future Scheduler", ASPLOS 2025 (arXiv
2507.10150), as a predictor.
Hooks: predict_output_len, request_finished.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque

from attrs import define, field
from attrs.validators import ge, in_, instance_of, le

from framework import Request, Status, hookimpl

_ENDS = (Status.FINISHED_STOPPED, Status.FINISHED_LENGTH_CAPPED)


@define(eq=False)
class _History:
    """The newest lengths, as they came and in order."""

    window: int
    newest: deque[int] = field(factory=deque)
    ordered: list[int] = field(factory=list)

    def add(self, length: int) -> None:
        self.newest.append(length)
        insort(self.ordered, length)
        if len(self.newest) > self.window:
            del self.ordered[bisect_left(self.ordered, self.newest.popleft())]

    def quantile(self, share: float, above: int) -> float:
        """Of the lengths above a number; one more than it where there are none."""
        first = bisect_right(self.ordered, above)
        count = len(self.ordered) - first
        if not count:
            return above + 1.0
        return float(self.ordered[first + min(count - 1, int(share * count))])


@define(eq=False)
class HistoryQuantile:
    """A quantile of past lengths.

    Args:
        quantile: which one, 0 to 1.
        window: newest lengths that count, in each group.
        least: lengths below which a group is not asked.
        group: whose lengths count: "all", "tenant" or "prompt" (similar prompt length).
    """

    quantile: float = field(default=0.5, validator=[instance_of((int, float)), ge(0), le(1)])
    window: int = field(default=1000, validator=[instance_of(int), ge(1)])
    least: int = field(default=10, validator=[instance_of(int), ge(1)])
    group: str = field(default="all", validator=in_(("all", "tenant", "prompt")))
    _groups: dict[str | int | None, _History] = field(factory=dict, init=False)
    _everybody: _History = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._everybody = _History(self.window)

    @hookimpl
    def predict_output_len(self, request: Request) -> float | None:
        """Of its own group, else of everybody."""
        for history in (self._groups.get(self._group_of(request)), self._everybody):
            if history is not None and len(history.ordered) >= self.least:
                return history.quantile(self.quantile, request.num_output_tokens)
        return None

    @hookimpl
    def request_finished(self, request: Request) -> None:
        """One more length."""
        if request.status not in _ENDS:
            return
        self._everybody.add(request.num_output_tokens)
        if self.group != "all":
            group = self._groups.setdefault(self._group_of(request), _History(self.window))
            group.add(request.num_output_tokens)

    def _group_of(self, request: Request) -> str | int | None:
        if self.group == "tenant":
            return request.tenant
        return request.num_prompt_tokens.bit_length()
