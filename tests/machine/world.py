"""World: one scheduler in random company, with everything that must hold checked at every move.

The model's tokens are a function of prompt, adapter, salt, images and position, so what a request
must give is known beforehand: every output is compared with it, and the runner compares the
content of every block that a request reads.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Final

from framework import HeadwayError, PolicyError, Request, RequestError, Scheduler, Status
from framework.testing import Invariants, TokenRunner, partly_right
from tests.machine.meddler import SabotageError, Saboteur, meddlers
from tests.machine.settings import POLICIES
from tests.machine.wishes import Wish, model_seed

if TYPE_CHECKING:
    from framework.output import RunnerOutput, SchedulerOutput
    from tests.machine.settings import Settings

MOST_LIVE: Final = 12
STEPS_TO_CALM: Final = 200
STEPS_TO_END: Final = 1500


class World:
    """A scheduler, its runner, and what is known about them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.random = Random(settings.seed)
        self.meddlers = meddlers(settings.meddling, self.random)
        self.scheduler = Scheduler(settings.config, [*settings.stack, *self.meddlers])
        self.depth = 2 if settings.is_async else 1
        self.runner = TokenRunner(
            settings.block_size,
            self.token,
            partly_right(self.token) if settings.drafts == "runner" else None,
            salt=lambda name: self.requests[name].cache_salt,
            delay=lambda: self.random.randint(0, 2),
        )
        self.invariants = Invariants(self.scheduler)
        self.in_flight: deque[tuple[SchedulerOutput, RunnerOutput]] = deque()
        self.requests: dict[str, Request] = {}
        self.seeds: dict[str, int] = {}
        self.streams: dict[str, list[int]] = {}
        self.told_preempted: set[str] = set()
        self.was_dropped = False
        """The last plan was dropped, or the stack swapped: a loss and a return may come in one."""
        self.num_wishes = 0
        self.num_steps = 0

    def token(self, name: str, position: int) -> int:
        """The model: output token number `position` of a request."""
        return hash((self.seeds[name], position)) % self.settings.vocabulary

    @property
    def may_plan(self) -> bool:
        """Whether `schedule` may be called now, and is worth it."""
        return len(self.in_flight) < self.depth and self.scheduler.has_requests()

    # moves

    def add(self, wish: Wish) -> None:
        """Add a request; it must be accepted exactly if it may be."""
        request = wish.request()
        name = request.request_id
        if not self.settings.reserve or (self.settings.is_async and self.settings.cap):
            # Of equal rank the earliest admitted gives way (as in vLLM), so that two long prompts
            # of one rank may take each other's blocks for ever where none is reserved, or where
            # they share blocks and grow by small chunks while outputs are still awaited.
            request.arrival_time = self.num_wishes
        self.num_wishes += 1
        before = self.scheduler.requests.get(name)
        fits = self.fits(request)
        try:
            self.scheduler.add_request(request)
        except RequestError as error:
            in_use = "in use" in str(error) and (before or self.settings.offload != "none")
            assert in_use or not fits, f"refused: {error}"
            assert self.scheduler.requests.get(name) is before
        except PolicyError as error:
            self._expected(error)
            assert self.scheduler.requests.get(name) is None
        else:
            assert fits and before is None, f"accepted: {request!r}"
            if name in self.requests:
                self.check_output(self.requests[name])
            self.requests[name] = request
            self.seeds[name] = model_seed(request)
            self.streams[name] = []
        self.invariants.check_state()

    def abort(self, name: str) -> None:
        """Abort a request that may be unknown, ended, waiting, running or in flight."""
        request = self.scheduler.requests.get(name)
        try:
            ended = self.scheduler.abort(name)
        except PolicyError as error:
            self._expected(error)
            ended = True
        assert ended == (request is not None)
        assert request is None or request.status is Status.FINISHED_ABORTED
        self.invariants.check_state()

    def schedule(self) -> None:
        """Plan and run a step."""
        try:
            output = self.scheduler.schedule()
        except PolicyError as error:
            self._expected(error)
            self.was_dropped = True
            self.invariants.check_state()
            return
        self.num_steps += 1
        self.invariants.after_schedule(output)
        self._check_told(output)
        self.in_flight.append((output, self.runner.execute(output)))

    def update(self) -> None:
        """Apply the results of the oldest step."""
        try:
            result = self.scheduler.update_from_output(*self.in_flight.popleft())
        except PolicyError as error:
            self._expected(error)
            result = error.result
        self.invariants.after_update(result)
        for name, tokens in zip(result.req_ids, result.new_token_ids, strict=True):
            self.streams[name] += tokens

    def step(self) -> None:
        """Plan what may be planned, or apply the oldest step; either, where both are possible."""
        if self.may_plan and not (self.in_flight and self.random.random() < 0.3):
            self.schedule()
        elif self.in_flight:
            self.update()

    def swap(self) -> None:
        """Another stack; if it fails, or transfers are under way, nothing may have changed."""
        while self.in_flight:
            self.update()
        before, self.meddlers = self.meddlers, meddlers(self.settings.meddling, self.random)
        stack = [*self.settings.stack_of(self.random.choice(list(POLICIES))), *self.meddlers]
        must_wait = self.scheduler.has_transfers
        try:
            self.scheduler.swap(stack)
        except HeadwayError as error:
            if not must_wait:
                assert isinstance(error, PolicyError), str(error)
                self._expected(error)
            self.meddlers = before
            self.invariants.check_state()
        else:
            assert not must_wait
            self.was_dropped = True
            self.invariants.after_swap()

    def drain(self) -> None:
        """Run until nothing is left, then check that nothing is, and every output."""
        first = self.num_steps
        while self.scheduler.has_requests() or self.in_flight:
            count = self.num_steps - first
            assert count < STEPS_TO_END, f"after {count} steps: {dict(self.scheduler.requests)}"
            for one in self.meddlers:
                one.is_calm = count > STEPS_TO_CALM
            self.step()
        self.invariants.at_idle()
        for request in self.requests.values():
            self.check_output(request)

    # what must hold

    def fits(self, request: Request) -> bool:
        """Whether prompt and output can ever be held, by the length limits alone."""
        config, params = self.scheduler.config, request.sampling_params
        length, most = request.num_prompt_tokens, config.max_model_len
        stored = length if params.max_tokens is None else length + params.max_tokens - 1
        room = self.settings.blocks * config.block_size
        if length > most - (not request.needs_pooling):
            return False
        return min(stored + self.settings.lookahead, most) <= room

    def expected_output(self, request: Request) -> list[int]:
        """What the request gives when nobody stops it from outside."""
        if request.needs_pooling:
            return []
        config, params, length = (
            self.scheduler.config,
            request.sampling_params,
            request.num_prompt_tokens,
        )
        most = config.max_model_len - length
        if params.max_tokens is not None:
            most = min(most, params.max_tokens)
        else:
            room = self.settings.blocks * config.block_size - self.settings.lookahead
            most = min(most, max(room - length, 0) + 1)
        tokens: list[int] = []
        while len(tokens) < most:
            tokens.append(self.token(request.request_id, len(tokens)))
            if len(tokens) >= params.min_tokens and tokens[-1] in request.stop_token_set:
                break
        return tokens

    def check_output(self, request: Request) -> None:
        """The tokens of a run alone: all of them, or as many as came before it was ended."""
        assert request.is_finished, f"{request!r} has not ended"
        expected, got = self.expected_output(request), request.output_token_ids
        assert self.streams[request.request_id] == got, f"{request!r}: results told other tokens"
        assert got == expected[: len(got)], f"{request!r} gave {got}, must give {expected}"
        if request.status in (Status.FINISHED_STOPPED, Status.FINISHED_LENGTH_CAPPED):
            assert got == expected, f"{request!r} gave {got}, must give {expected}"
        if request.status is Status.FINISHED_ERROR:
            assert request.error

    def _check_told(self, output: SchedulerOutput) -> None:
        """A runner hears of every loss before the return; shared blocks are shared by all."""
        self.told_preempted.update(output.preempted_req_ids)
        for name in output.finished_req_ids:
            self.told_preempted.discard(name)
        for name in output.scheduled_cached_reqs.resumed_req_ids:
            told = name in self.told_preempted or self.was_dropped
            assert told, f"{name} is back, and nobody told that it was lost"
            self.told_preempted.discard(name)
        self.was_dropped = False
        kv, count = self.scheduler.kv, output.num_common_prefix_blocks
        assert kv is not None
        if count:
            tables = {tuple(kv.block_ids(one)[:count]) for one in self.scheduler.running}
            assert len(tables) == 1, f"{count} common blocks are told, the tables are {tables}"

    def _expected(self, error: PolicyError) -> None:
        """Only the saboteur may fail, and the error must say that it did, and where."""
        saboteurs = [one for one in self.meddlers if isinstance(one, Saboteur)]
        assert saboteurs, f"nobody raises here: {error}"
        failed = saboteurs[0].failed
        assert error.plugin == "saboteur" and error.hook in failed, f"{error}; failed: {failed}"
        failed.clear()
        assert isinstance(error.__cause__, SabotageError)
