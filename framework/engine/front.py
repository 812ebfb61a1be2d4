"""Front: prompts in, completions out, over one engine core. Text and time are kept here."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from framework.engine.completion import LiveRequest
from framework.engine.core import EngineCore
from framework.errors import PolicyError, RequestError
from framework.metrics import Recorder
from framework.scheduler import Scheduler
from framework.stack import complete_stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

    from framework.engine.completion import Completion
    from framework.engine.models import LoadedModel
    from framework.engine.prompts import Prompt
    from framework.engine.tokenizer import Tokenizer
    from framework.loading import Spec
    from framework.output import StepResult
    from framework.protocols import Clock

IDLE_S = 0.001
log = logging.getLogger("headway.front")


class Front:
    """A loaded model under one plugin stack, with fresh books and an empty cache.

    Args:
        model: runner, tokenizer and limits; it outlives the front.
        plugins: the whole stack, last asked first.
        clock: tells the time in seconds; real time by default.
        timed: time every call of every hook, for `core.scheduler.hook_times()`.

    Raises:
        PluginError: the stack cannot be built.
    """

    def __init__(
        self,
        model: LoadedModel,
        plugins: Sequence[Spec],
        clock: Clock | None = None,
        *,
        timed: bool = False,
    ) -> None:
        self.model = model
        self._recorder = Recorder()
        self.core = EngineCore(
            Scheduler(model.config, [*plugins, self._recorder], clock=clock, timed=timed),
            model.runner,
        )
        self._live: dict[str, LiveRequest] = {}
        self._num_named = 0

    @property
    def clock(self) -> Clock:
        """The scheduler's clock."""
        return self.core.scheduler.clock

    @property
    def has_live(self) -> bool:
        """True while a request has not ended."""
        return bool(self._live)

    def submit(self, prompt: Prompt, arrival_time: float | None = None) -> LiveRequest:
        """Accept a prompt.

        Args:
            prompt: what to answer.
            arrival_time: when it arrived on the scheduler's clock; None = now.

        Raises:
            RequestError: it is refused; the message begins with `prompt.where`.
        """
        model = self.model
        token_ids = prompt.encode(model.tokenizer)
        prompt.check(token_ids, model.tokenizer, getattr(model.runner, "vocab_size", None))
        request = prompt.as_request(
            token_ids,
            prompt.request_id or self._next_name(),
            self.clock.now() if arrival_time is None else arrival_time,
            model.eos_token_ids,
        )
        try:
            self.core.add(request)
        except RequestError as error:
            raise RequestError(f"{prompt.where}: {error}") from error
        live = LiveRequest.of(request, self._recorder.track(request), model.tokenizer)
        self._live[request.request_id] = live
        return live

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Of the model."""
        return self.model.tokenizer

    def answer(self, prompts: Iterable[Prompt]) -> list[Completion]:
        """Answer prompts; they all arrive now.

        Raises:
            RequestError: one is refused; nothing was run.
            PolicyError, StallError: see `EngineCore.step`; all of them were aborted.
        """
        lives: list[LiveRequest] = []
        try:
            for prompt in prompts:
                lives.append(self.submit(prompt))
        except RequestError:
            self._abandon(lives)
            raise
        return self.run(lives)

    def stream_text(self, prompt: Prompt) -> Iterator[str]:
        """Answer one prompt, yielding its text as it becomes certain.

        Raises:
            RequestError: it is refused.
        """
        return self.stream(self.submit(prompt))

    def abort(self, request_id: str) -> None:
        """End a request now; it gets a completion with reason "abort". Unknown ids are ignored."""
        self.core.abort(request_id)
        live = self._live.pop(request_id, None)
        if live is not None:
            live.end("abort", None, None, self.clock.now())

    def step(self) -> list[LiveRequest]:
        """Run one step; returns the requests that ended with it.

        Raises:
            PolicyError, StallError: see `EngineCore.step`; what was computed is kept.
        """
        try:
            result = self.core.step()
        except PolicyError as error:
            if error.result is not None:
                self._deliver(error.result)
            raise
        ended = [] if result is None else self._deliver(result)
        if self.core.is_idle and self._live and not ended:
            time.sleep(IDLE_S)
        return ended

    def _deliver(self, result: StepResult) -> list[LiveRequest]:
        now = self.clock.now()
        ended: list[LiveRequest] = []
        for name, token_ids in zip(result.req_ids, result.new_token_ids, strict=True):
            live = self._live.get(name)
            if live is None or not token_ids:
                continue
            if live.take(token_ids, result.logprobs.get(name, ()), now):
                self.core.abort(name)
                live.end("stop", live.text.stopped_by if live.text else None, None, now)
                ended.append(self._live.pop(name))
        for name in result.finish_reasons:
            live = self._live.pop(name, None)
            if live is not None:
                live.end_as(result, now)
                ended.append(live)
        for live in ended:
            reason = live.completion.finish_reason if live.completion else None
            log.debug("finished %s (%s) in step %d", live.request.request_id, reason, result.step)
        return ended

    def run(self, lives: Iterable[LiveRequest]) -> list[Completion]:
        """Step until all these requests have ended; if that fails they are aborted.

        Raises:
            PolicyError, StallError: see `EngineCore.step`.
        """
        wanted = list(lives)
        try:
            for live in wanted:
                while live.completion is None:
                    self.step()
        except BaseException:
            self._abandon(wanted)
            raise
        return [live.completion for live in wanted if live.completion is not None]

    def stream(self, live: LiveRequest) -> Iterator[str]:
        """Step until the request has ended, yielding its text; it is aborted if nobody listens."""
        try:
            while live.completion is None:
                self.step()
                if piece := live.take_text():
                    yield piece
            if piece := live.take_text():
                yield piece
        finally:
            self._abandon([live])

    def _abandon(self, lives: Iterable[LiveRequest]) -> None:
        for live in lives:
            if live.completion is None:
                self.abort(live.request.request_id)

    def swap(self, plugins: Sequence[Spec]) -> list[str]:
        """Put another stack in place of this one; see `EngineCore.swap`.

        Args:
            plugins: the stack, last asked first, completed as `LLM` does.

        Returns:
            The names of the new stack.

        Raises:
            PluginError, PolicyError, HeadwayError: it cannot be used now; the old one stays.
        """
        try:
            self.core.swap([*complete_stack(plugins), self._recorder])
        finally:  # told at once: an id that ends now may be used again
            for result in self.core.take_early():
                self._deliver(result)
        stack = self.core.scheduler.plugins
        return [name for name, plugin in stack if plugin is not self._recorder]

    def drain(self) -> None:
        """End what is left and let the runner hear of it, so that another front can follow."""
        for name in list(self._live):
            self.abort(name)
        while self.core.has_work:
            self.core.step()

    def close(self) -> None:
        """Give the planning thread back; the model stays open."""
        self.core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_name(self) -> str:
        self._num_named += 1
        return f"request-{self._num_named}"
