"""What comes back: append tokens, take back rejected drafts, stop, release, report.

Tokens are applied to all requests first, without calling a plugin; hooks follow, and a failing
one does not keep the others from being called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework import answers, places
from framework.errors import RunnerError
from framework.hooks import NOTHING
from framework.output import RunnerOutput, SchedulerOutput, StepResult
from framework.places import attempt
from framework.reports import StepReport, TokenCounts
from framework.request import Request, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.books import Books, InFlight

REASONS = {
    Status.FINISHED_STOPPED: "stop",
    Status.FINISHED_LENGTH_CAPPED: "length",
    Status.FINISHED_ABORTED: "abort",
    Status.FINISHED_REJECTED: "rejected",
    Status.FINISHED_ERROR: "error",
}


def apply(
    books: Books, output: SchedulerOutput, runner_output: RunnerOutput, errors: list[Exception]
) -> StepResult:
    """Apply one step's results; errors of plugins are collected, those of runners raised."""
    flight = _match(books, output, runner_output)
    result = StepResult(output.step)
    sampled = runner_output.sampled_token_ids
    if books.config.async_scheduling or flight.drafts:
        ended = _apply_each(books, flight, sampled, result)
    else:
        ended = _apply_plain(flight, sampled, result)
    books.counters.num_sampled_tokens += sum(map(len, result.new_token_ids))
    if runner_output.pooler_outputs:
        ended += _pooled(flight, runner_output, result)
    if books.config.async_scheduling and books.hooks.publish is not NOTHING:
        _publish(books, flight, errors)
    for request, status in ended:
        result.finish_reasons[request.request_id] = REASONS[status]
        if request.stop_reason is not None:
            result.stop_reasons[request.request_id] = request.stop_reason
        attempt(errors, places.finish, books, request, status)
    _tell_refused(books, result)
    if runner_output.logprobs:
        result.logprobs = runner_output.logprobs
    if runner_output.finished_recving or runner_output.finished_sending:
        received, sent = runner_output.finished_recving, runner_output.finished_sending
        places.transfers_done(books, received, sent, errors)
    if books.config.num_spec_tokens and not books.config.async_scheduling:
        _propose(books, flight, runner_output, errors)
    if books.hooks.step_finished is not NOTHING:
        report = _report(books, flight, runner_output, result)
        attempt(errors, books.hooks.step_finished, report)
    return result


def _match(books: Books, output: SchedulerOutput, runner_output: RunnerOutput) -> InFlight:
    if not books.in_flight or books.in_flight[0].output is not output:
        oldest = books.in_flight[0].output.step if books.in_flight else "none"
        raise RunnerError(
            f"results of step {output.step} came out of order; the oldest step in flight: {oldest}"
        )
    flight = books.in_flight[0]
    lists = len(runner_output.sampled_token_ids)
    if lists != len(flight.requests):
        raise RunnerError(
            f"sampled_token_ids: got {lists} lists for step {output.step}, allowed: one for each "
            f"of its {len(flight.requests)} requests"
        )
    return books.in_flight.popleft()


def _apply_plain(
    flight: InFlight, sampled: Sequence[Sequence[int]], result: StepResult
) -> list[tuple[Request, Status]]:
    """One token each, or none for a chunk: the common case, kept tight."""
    ended: list[tuple[Request, Status]] = []
    running, all_gave = Status.RUNNING, True
    for request, tokens in zip(flight.requests, sampled, strict=True):
        if len(tokens) != 1 or request.status is not running:
            _check_count(flight, request, tokens, 0)
            all_gave = False
            continue
        token = tokens[0]
        request.all_token_ids.append(token)
        request.num_known_tokens = num_tokens = request.num_known_tokens + 1
        if num_tokens >= request.length_limit or token in request.stop_token_set:
            status = _end(request, token)
            if status is not None:
                ended.append((request, status))
    if all_gave:
        result.req_ids = list(flight.output.num_scheduled_tokens)
        result.new_token_ids = list(sampled)
        return ended
    for request, tokens in zip(flight.requests, sampled, strict=True):
        if tokens and request.status is running:
            result.req_ids.append(request.request_id)
            result.new_token_ids.append(tokens)
    return ended


def _apply_each(
    books: Books, flight: InFlight, sampled: Sequence[Sequence[int]], result: StepResult
) -> list[tuple[Request, Status]]:
    """Drafts, placeholders, and requests that lost their place meanwhile."""
    ended: list[tuple[Request, Status]] = []
    for request, tokens in zip(flight.requests, sampled, strict=True):
        if request.is_finished:
            continue
        if request.num_awaited_outputs:
            request.num_awaited_outputs -= 1
            if not request.num_awaited_outputs:
                books.awaiting.discard(request)
        num_drafts = len(flight.drafts.get(request.request_id, ()))
        if not tokens:
            _check_count(flight, request, tokens, num_drafts)
            continue
        if len(tokens) > num_drafts + 1:
            _check_count(flight, request, tokens, num_drafts)
        kept, status = _append(request, tokens)
        if request.status is not Status.PREEMPTED:
            _settle(books, request, num_drafts + 1 - len(tokens), len(kept))
        if num_drafts and request not in flight.admitted:
            books.counters.num_drafts += num_drafts
            books.counters.num_drafts_accepted += len(tokens) - 1
        result.req_ids.append(request.request_id)
        result.new_token_ids.append(kept)
        if status is not None:
            ended.append((request, status))
    return ended


def _settle(books: Books, request: Request, num_rejected: int, num_kept: int) -> None:
    """Rejected drafts were not computed after all; placeholders became tokens."""
    request.num_computed_tokens -= num_rejected
    if books.config.async_scheduling:
        left = request.num_output_placeholders - num_rejected - num_kept
        request.set_placeholders(left)


def _append(request: Request, tokens: Sequence[int]) -> tuple[list[int], Status | None]:
    """Append up to the token that ends the request."""
    kept: list[int] = []
    for token in tokens:
        kept.append(token)
        request.all_token_ids.append(token)
        request.num_known_tokens += 1
        is_last = request.num_tokens >= request.length_limit
        if is_last or token in request.stop_token_set:
            status = _end(request, token)
            if status is not None:
                return kept, status
    return kept, None


def _end(request: Request, token: int) -> Status | None:
    """How this token ends the request: a stop token before the length."""
    if token in request.stop_token_set:
        params = request.sampling_params
        if request.num_output_tokens >= params.min_tokens:
            if token not in request.eos_token_ids or token in params.stop_token_ids:
                request.stop_reason = token
            return Status.FINISHED_STOPPED
    if request.num_tokens >= request.length_limit:
        return Status.FINISHED_LENGTH_CAPPED
    return None


def _check_count(
    flight: InFlight, request: Request, tokens: Sequence[int], num_drafts: int
) -> None:
    if request.is_finished:
        return
    samples = not (request in flight.cut or request.needs_pooling)
    if len(tokens) > num_drafts + 1 or (samples and not tokens):
        allowed = f"1 to {num_drafts + 1}" if samples else "none"
        raise RunnerError(
            f"sampled_token_ids of request {request.request_id!r}: got {len(tokens)} tokens, "
            f"allowed: {allowed}"
        )


def _pooled(
    flight: InFlight, runner_output: RunnerOutput, result: StepResult
) -> list[tuple[Request, Status]]:
    pooled = runner_output.pooler_outputs or {}
    result.pooler_outputs = pooled
    return [
        (request, Status.FINISHED_STOPPED)
        for request in flight.requests
        if request.request_id in pooled and not request.is_finished
    ]


def _publish(books: Books, flight: InFlight, errors: list[Exception]) -> None:
    for request in flight.requests:
        if request.status is Status.RUNNING:
            settled = request.num_computed_tokens - request.num_output_placeholders
            attempt(errors, books.hooks.publish, request, settled)


def _tell_refused(books: Books, result: StepResult) -> None:
    for request in books.refused:
        result.finish_reasons[request.request_id] = REASONS[request.status]
        if request.error is not None:
            result.errors[request.request_id] = request.error
    books.refused.clear()


def _propose(
    books: Books, flight: InFlight, runner_output: RunnerOutput, errors: list[Exception]
) -> None:
    """Drafts for the next step, from the runner or from a plugin."""
    hooks, from_runner = books.hooks, runner_output.draft_token_ids or {}
    for request in flight.requests:
        if request.status is not Status.RUNNING or request in flight.cut:
            continue
        num_drafts = flight.output.num_drafts.get(request.request_id, 0)
        proposed = from_runner.get(request.request_id)
        if proposed is None:
            proposed = attempt(errors, hooks.propose_drafts, request, num_drafts)
        if proposed:
            checked = attempt(errors, answers.drafts, hooks, proposed, num_drafts, request)
            request.set_drafts(checked or [])


def _report(
    books: Books, flight: InFlight, runner_output: RunnerOutput, result: StepResult
) -> StepReport:
    output, cached = flight.output, flight.output.scheduled_cached_reqs
    starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    starts.update((new.request_id, new.num_computed_tokens) for new in output.scheduled_new_reqs)
    kept = dict(zip(result.req_ids, map(len, result.new_token_ids), strict=True))
    tokens: dict[Request, TokenCounts] = {}
    for request, sampled in zip(flight.requests, runner_output.sampled_token_ids, strict=True):
        name = request.request_id
        start, count = starts[name], output.num_scheduled_tokens[name]
        num_drafts = 0 if request in flight.admitted else len(flight.drafts.get(name, ()))
        end, before = start + count - len(flight.drafts.get(name, ())), request.num_once_computed
        accepted = min(num_drafts, max(0, len(sampled) - 1))
        admission = flight.admitted.get(request)
        tokens[request] = TokenCounts(
            prefill=max(0, min(end, request.num_prompt_tokens) - max(start, before)),
            cached=admission.hit.num_tokens if admission else 0,
            recomputed=max(0, min(end, before) - start),
            decode=max(0, kept.get(name, 0) - accepted),
            draft_accepted=accepted,
            draft_rejected=num_drafts - accepted,
        )
    duration = runner_output.duration_s
    if duration is None:
        duration = books.clock.now() - flight.started
    return StepReport(output.step, duration, tokens, runner_output.probes)
