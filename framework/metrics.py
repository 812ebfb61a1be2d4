"""Request timelines and what they come to: TTFT, TPOT, ITL, E2E, queueing, throughput.

Every latency counts from the request's arrival. The first token's time is set once, and hits and
queueing are those of the first admission, so a preemption rewrites nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from attrs import define, field, frozen

from framework.hookspecs import hookimpl
from framework.stash import StashKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from framework.protocols import Hit
    from framework.request import Request
    from framework.view import StepView


@define(eq=False)
class Timeline:
    """What happened to one request, in seconds on one clock. None = has not happened.

    Attributes:
        arrival: when it arrived.
        first_admission: beginning of the step that admitted it first.
        first_token: when its first token came out.
        last_token: when its newest token came out.
        finish: when it ended, for whatever reason.
        gaps: seconds between one delivery of tokens and the next (accepted drafts arrive
            together); their sum is `last_token - first_token`.
        preempted_s: seconds in which it had lost its place.
        num_prompt_tokens, num_output_tokens: its length.
        num_cached_tokens: tokens that its first admission got for nothing.
        num_preemptions: how often it lost its place.
    """

    arrival: float
    num_prompt_tokens: int
    first_admission: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    finish: float | None = None
    gaps: list[float] = field(factory=list)
    preempted_s: float = 0.0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    _lost_at: float | None = None

    def admitted(self, now: float, num_cached_tokens: int, *, resumed: bool) -> None:
        """Note an admission; only the first one sets queueing and cached tokens."""
        if not resumed:
            self.first_admission = now
            self.num_cached_tokens = num_cached_tokens
        elif self._lost_at is not None:
            self.preempted_s += now - self._lost_at
            self._lost_at = None

    def lost_place(self, now: float) -> None:
        """Note a preemption."""
        self.num_preemptions += 1
        if self._lost_at is None:
            self._lost_at = now

    def delivered(self, now: float, num_tokens: int) -> None:
        """Note tokens that came out together."""
        if self.last_token is None:
            self.first_token = now
        else:
            self.gaps.append(now - self.last_token)
        self.last_token = now
        self.num_output_tokens += num_tokens

    @property
    def queueing_s(self) -> float | None:
        """Arrival to first admission."""
        return _minus(self.first_admission, self.arrival)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from arrival."""
        return _minus(self.first_token, self.arrival)

    @property
    def e2e_s(self) -> float | None:
        """Arrival to end."""
        return _minus(self.finish, self.arrival)

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for an output of one token."""
        if self.first_token is None or self.last_token is None or self.num_output_tokens < 2:
            return None
        return (self.last_token - self.first_token) / (self.num_output_tokens - 1)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json` files."""
        return {
            "arrival": self.arrival,
            "first_admission": self.first_admission,
            "first_token": self.first_token,
            "finish": self.finish,
            "queueing_s": self.queueing_s,
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            "e2e_s": self.e2e_s,
            "preempted_s": self.preempted_s,
        }


SHARES = (0.5, 0.9, 0.95, 0.99)
_TIMELINE: StashKey[Timeline] = StashKey()


@define(eq=False)
class Recorder:
    """Plugin that writes timelines. It only observes, at arrivals, admissions and preemptions.

    One instance lasts over swaps of the stack.
    """

    name = "recorder"
    stash_keys = (_TIMELINE,)

    def track(self, request: Request) -> Timeline:
        """The timeline of a request; the first call begins it."""
        timeline = request.stash.get(_TIMELINE, None)
        if timeline is None:
            timeline = Timeline(request.arrival_time, request.num_prompt_tokens)
            request.stash[_TIMELINE] = timeline
        return timeline

    def swapped(self, preempted: Sequence[Request], now: float) -> None:
        """Note who lost its place by a swap of the stack, of which no hook tells."""
        for request in preempted:
            self.track(request).lost_place(now)

    @hookimpl
    def request_admitted(self, request: Request, hit: Hit, resumed: bool, step: StepView) -> None:
        """Note when, and what it got for nothing."""
        self.track(request).admitted(step.now, hit.num_tokens, resumed=resumed)

    @hookimpl
    def request_preempted(self, request: Request, step: StepView) -> None:
        """Note when."""
        self.track(request).lost_place(step.now)


@frozen
class Distribution:
    """Percentiles of a sample in seconds (linear interpolation); None where it is empty."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Distribution:
        """The distribution of the values that are not None."""
        known = sorted(value for value in values if value is not None)
        if not known:
            return cls()
        mean = sum(known) / len(known)
        p50, p90, p95, p99 = (_percentile(known, share) for share in SHARES)
        return cls(len(known), mean, p50, p90, p95, p99, known[-1])


@frozen(kw_only=True)
class Summary:
    """What a run came to.

    Attributes:
        num_requests: how many the timelines are; num_finished: of those, ended.
        ttft_s, tpot_s, itl_s, e2e_s, queueing_s: distributions in seconds.
        num_prompt_tokens, num_output_tokens: sums.
        num_cached_tokens: prompt tokens that first admissions got for nothing.
        num_preemptions: times a request lost its place.
        duration_s: first arrival to the last token or end.
    """

    num_requests: int
    num_finished: int
    ttft_s: Distribution
    tpot_s: Distribution
    itl_s: Distribution
    e2e_s: Distribution
    queueing_s: Distribution
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    duration_s: float

    @property
    def output_tokens_per_s(self) -> float | None:
        """Output tokens a second over the whole run."""
        return self.num_output_tokens / self.duration_s if self.duration_s else None

    @property
    def requests_per_s(self) -> float | None:
        """Finished requests a second over the whole run."""
        return self.num_finished / self.duration_s if self.duration_s else None

    @property
    def hit_rate(self) -> float | None:
        """Share of the admitted prompt tokens that was found in the cache."""
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json` files."""
        return {
            **attrs.asdict(self),
            "output_tokens_per_s": self.output_tokens_per_s,
            "requests_per_s": self.requests_per_s,
            "hit_rate": self.hit_rate,
        }


def summarise(timelines: Sequence[Timeline]) -> Summary:
    """Sum up timelines of one clock. Prompt tokens count once a request has been admitted."""
    admitted = [line for line in timelines if line.first_admission is not None]
    ends = [time for line in timelines for time in (line.last_token, line.finish) if time]
    start = min((line.arrival for line in timelines), default=0.0)
    return Summary(
        num_requests=len(timelines),
        num_finished=sum(line.finish is not None for line in timelines),
        ttft_s=Distribution.of(line.ttft_s for line in timelines),
        tpot_s=Distribution.of(line.tpot_s for line in timelines),
        itl_s=Distribution.of(gap for line in timelines for gap in line.gaps),
        e2e_s=Distribution.of(line.e2e_s for line in timelines),
        queueing_s=Distribution.of(line.queueing_s for line in timelines),
        num_prompt_tokens=sum(line.num_prompt_tokens for line in admitted),
        num_output_tokens=sum(line.num_output_tokens for line in timelines),
        num_cached_tokens=sum(line.num_cached_tokens for line in admitted),
        num_preemptions=sum(line.num_preemptions for line in timelines),
        duration_s=max(ends, default=start) - start,
    )


def _minus(later: float | None, earlier: float) -> float | None:
    return None if later is None else later - earlier


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
