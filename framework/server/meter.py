"""What the server measures itself, under vLLM's names: from the arrival of a call to its tokens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

if TYPE_CHECKING:
    from framework.engine.completion import Completion
    from framework.server.faces import PieceLike

FIRST_TOKEN_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
BETWEEN_S: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
WHOLE_S: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
MOST_TOKENS_IN_BUCKETS: Final = 1 << 20


def token_buckets(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to `most`."""
    steps = [digit * 10**power for power in range(7) for digit in (1, 2, 5)]
    return tuple(float(step) for step in steps if step <= max(most, 1))


@define(eq=False)
class Course:
    """One request as its pieces come in; times of `time.perf_counter`."""

    arrival: float
    num_prompt_tokens: int
    first: float | None = None
    last: float | None = None
    num_tokens: int = 0


@define(eq=False)
class Meter:
    """Counters and histograms of one app, in a registry of their own.

    A piece is what came to the server at once; a gap is the time between two of them.
    """

    model_name: str
    max_model_len: int
    registry: CollectorRegistry = field(factory=CollectorRegistry)
    _made: dict[str, Any] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series for each
        tokens = token_buckets(min(self.max_model_len, MOST_TOKENS_IN_BUCKETS))
        for name, buckets, told in (
            ("time_to_first_token_seconds", FIRST_TOKEN_S, "Arrival of a call to its first token."),
            ("inter_token_latency_seconds", BETWEEN_S, "Between two deliveries of tokens."),
            ("request_time_per_output_token_seconds", BETWEEN_S, "Mean time a token, a request."),
            ("e2e_request_latency_seconds", WHOLE_S, "Arrival of a call to its end."),
            ("request_queue_time_seconds", WHOLE_S, "Arrival at the engine to the first place."),
            ("request_prompt_tokens", tokens, "Prompt tokens of a request."),
            ("request_generation_tokens", tokens, "Output tokens of a request."),
        ):
            made = Histogram(
                f"vllm:{name}", told, ("model_name",), buckets=buckets, registry=self.registry
            )
            self._made[name] = made.labels(self.model_name)
        for name, told in (
            ("prompt_tokens", "Prompt tokens of requests that gave output."),
            ("generation_tokens", "Output tokens."),
        ):
            count = Counter(f"vllm:{name}", told, ("model_name",), registry=self.registry)
            self._made[name] = count.labels(self.model_name)
        self._made["success"] = Counter(
            "vllm:request_success",
            "Requests that ended, by reason.",
            ("model_name", "finished_reason"),
            registry=self.registry,
        )
        self._made["refused"] = Counter(
            "headway:requests_refused",
            "Calls for output that were answered with an error, by reason.",
            ("model_name", "reason"),
            registry=self.registry,
        )

    def took(self, course: Course, piece: PieceLike) -> None:
        """A piece came in."""
        now, num_tokens = time.perf_counter(), len(piece.token_ids)
        if not num_tokens:
            return
        if course.last is None:
            course.first = now
            self._made["time_to_first_token_seconds"].observe(now - course.arrival)
            self._made["prompt_tokens"].inc(course.num_prompt_tokens)
        else:
            self._made["inter_token_latency_seconds"].observe(now - course.last)
        course.last = now
        course.num_tokens += num_tokens
        self._made["generation_tokens"].inc(num_tokens)

    def ended(self, course: Course, reason: str, completion: Completion | None) -> None:
        """A request ended."""
        self._made["success"].labels(self.model_name, reason).inc()
        if reason in ("rejected", "error"):
            return
        self._made["e2e_request_latency_seconds"].observe(time.perf_counter() - course.arrival)
        self._made["request_prompt_tokens"].observe(course.num_prompt_tokens)
        self._made["request_generation_tokens"].observe(course.num_tokens)
        if course.first is not None and course.last is not None and course.num_tokens > 1:
            mean = (course.last - course.first) / (course.num_tokens - 1)
            self._made["request_time_per_output_token_seconds"].observe(mean)
        queueing_s = None if completion is None else completion.timings.queueing_s
        if queueing_s is not None:
            self._made["request_queue_time_seconds"].observe(max(queueing_s, 0.0))

    def refused(self, reason: str) -> None:
        """A call was answered with an error."""
        self._made["refused"].labels(self.model_name, reason).inc()
