"""The desk: where calls are let in, under limits, and their requests are followed to the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from attrs import define, field

from framework.errors import RequestError
from framework.server.errors import RETRY_AFTER_S, ApiError, bad_value, too_many
from framework.server.job import Job
from framework.server.meter import Course

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.engine.prompts import Prompt
    from framework.server.faces import EngineLike
    from framework.server.meter import Meter


@define(eq=False, kw_only=True)
class Desk:
    """Lets calls in.

    Attributes:
        engine: what answers them.
        meter: what they are measured with.
        max_queue: most unfinished requests, each choice of a call is one; None = no limit.
        max_per_tenant: most unfinished requests of one tenant; those without `user` are one.
        is_closing: True = nobody is let in any more.
    """

    engine: EngineLike
    meter: Meter
    max_queue: int | None = None
    max_per_tenant: int | None = None
    is_closing: bool = False
    _names: set[str] = field(factory=set, init=False)  # of calls, and of their requests
    _num_unfinished: int = field(default=0, init=False)
    _by_tenant: Counter[str | None] = field(factory=Counter, init=False)

    @property
    def num_unfinished(self) -> int:
        """Requests that were let in and have not ended."""
        return self._num_unfinished

    async def open(self, name: str, prompts: Sequence[Prompt], arrival: float) -> Job:
        """Let one call in; its job must be closed, whatever becomes of it.

        Args:
            name: what the call is called; no two unfinished ones have one name.
            prompts: its choices; all have names and one tenant.
            arrival: when it came, by `time.perf_counter`.

        Raises:
            ApiError: a limit is reached, or a name is taken.
            RequestError: the engine refuses a prompt.
            EngineDeadError: there is no engine.
        """
        names = {name, *(prompt.request_id or name for prompt in prompts)}
        num_new, tenant = len(prompts), prompts[0].tenant
        self.check_room(num_new, tenant)
        self._check_names(names)
        self._names |= names
        self._count(num_new, tenant)

        def leave() -> None:
            self._names -= names
            self._count(-num_new, tenant)

        job = Job(meter=self.meter, leave=leave)
        try:
            for prompt in prompts:
                stream = await self.engine.submit(prompt)
                job.add(stream, Course(arrival, stream.num_prompt_tokens))
        except BaseException:
            await job.close()
            raise
        return job

    async def close(self) -> None:
        """Abort everything; clients get what there is, and the reason "abort"."""
        for name in list(self._names):
            await self.engine.abort(name)

    def check_room(self, num_new: int, tenant: str | None) -> None:
        """Raises ApiError if there is no room for so many requests more."""
        self.check_open()
        if self.max_queue is not None and num_new > self.max_queue:
            told = f"n: got {num_new} choices in all, allowed: at most {self.max_queue}"
            raise bad_value("n", told)
        if self.max_queue is not None and self.num_unfinished + num_new > self.max_queue:
            raise too_many(
                f"the queue is full: {self.num_unfinished} unfinished requests, allowed: "
                f"{self.max_queue}; try again in {RETRY_AFTER_S} s",
                code="queue_full",
            )
        self._check_tenant(num_new, tenant)

    def _check_names(self, names: set[str]) -> None:
        taken = min(names & self._names, default=None)
        if taken is not None:
            told = f"request id {taken!r}: a request of that name is unfinished; allowed: another"
            raise ApiError(409, told, code="duplicate_request_id", param="X-Request-Id")

    def _check_tenant(self, num_new: int, tenant: str | None) -> None:
        limit, num_old = self.max_per_tenant, self._by_tenant[tenant]
        if limit is None or num_old + num_new <= limit:
            return
        who = "requests without user" if tenant is None else f"user {tenant!r}"
        if num_new > limit:
            raise bad_value("n", f"n: got {num_new} choices in all, allowed for {who}: {limit}")
        raise too_many(
            f"{who}: {num_old} unfinished requests, allowed: {limit}; "
            f"try again in {RETRY_AFTER_S} s",
            code="tenant_limit",
        )

    def check_open(self) -> None:
        """Raises ApiError 503 once the server is stopping."""
        if self.is_closing:
            raise ApiError(503, "the server is stopping", code="shutting_down")

    def _count(self, num_more: int, tenant: str | None) -> None:
        self._num_unfinished += num_more
        self._by_tenant[tenant] += num_more
        if self._by_tenant[tenant] <= 0:
            del self._by_tenant[tenant]


def request_name(given: str | None, made: str) -> str:
    """What a call is called: what its client says, or what was made for it.

    Raises:
        RequestError: the client's name cannot be one.
    """
    if given is None:
        return made
    if not (0 < len(given) <= 128 and given.isascii() and given.isprintable()):
        raise RequestError(
            f"X-Request-Id: got {given[:80]!r}, allowed: 1 to 128 printable ASCII characters"
        )
    return given
