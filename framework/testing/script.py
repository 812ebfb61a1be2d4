"""The two sides of a scheduler that a recorded scenario scripts: a runner and external KV.

Neither computes anything. The runner reads only `SchedulerOutput`, as a real one does; what it
samples, drafts and accepts is written in the scenario.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from framework.hookspecs import hookimpl
from framework.protocols import LATER, Answer, ExternalHit, Hit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from framework.output import SchedulerOutput
    from framework.request import Request


@define(eq=False)
class ScenarioRunner:
    """Samples and drafts by the lists of a scenario's requests.

    Attributes:
        requests: {id: request of the scenario}.
        num_spec_tokens: most drafts of one request in one step.
        num_sampled: {id: tokens sampled so far}, preemptions included.
    """

    requests: Mapping[str, Mapping[str, Any]]
    num_spec_tokens: int
    num_sampled: dict[str, int] = field(init=False)
    _num_verified: dict[str, int] = field(init=False)
    _num_proposed: dict[str, int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.num_sampled = dict.fromkeys(self.requests, 0)
        self._num_verified = dict.fromkeys(self.requests, 0)
        self._num_proposed = dict.fromkeys(self.requests, 0)

    def sample(self, output: SchedulerOutput) -> dict[str, list[int]]:
        """{id: sampled tokens} of one step, in batch order; none for a chunk."""
        cached = output.scheduled_cached_reqs
        known = dict.fromkeys(output.num_scheduled_tokens, 0)  # outputs, placeholders included
        known.update(zip(cached.req_ids, cached.num_output_tokens, strict=True))
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        admitted = set(cached.resumed_req_ids)
        for new in output.scheduled_new_reqs:
            computed[new.request_id] = new.num_computed_tokens
            admitted.add(new.request_id)
        sampled: dict[str, list[int]] = {}
        for name, num_tokens in output.num_scheduled_tokens.items():
            num_drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
            end = computed[name] + num_tokens - num_drafts
            if end < len(self.requests[name]["prompt_token_ids"]) + known[name]:
                sampled[name] = []
            else:
                verified = (
                    0 if name in admitted else num_drafts
                )  # those of an admission are padding
                sampled[name] = self._verify(name, verified)
        return sampled

    def propose(self, name: str) -> list[int]:
        """Drafts after the tokens sampled so far: as many right ones as will be accepted."""
        request = self.requests[name]
        lengths = request.get("draft_lens") or [self.num_spec_tokens]
        count = min(_cycle(lengths, self._num_proposed[name]), self.num_spec_tokens)
        self._num_proposed[name] += 1
        num_right = _cycle(request.get("accept_counts") or [0], self._num_verified[name])
        tokens = self._next_tokens(name, count)
        return [token + (index >= num_right) for index, token in enumerate(tokens)]

    def _verify(self, name: str, num_drafts: int) -> list[int]:
        num_accepted = 0
        if num_drafts:
            plan = self.requests[name].get("accept_counts") or [0]
            num_accepted = min(_cycle(plan, self._num_verified[name]), num_drafts)
            self._num_verified[name] += 1
        tokens = self._next_tokens(name, num_accepted + 1)
        self.num_sampled[name] += len(tokens)
        return tokens

    def _next_tokens(self, name: str, count: int) -> list[int]:
        tokens, first = self.requests[name]["output_token_ids"], self.num_sampled[name]
        return [_cycle(tokens, first + index) for index in range(count)]


def _cycle(values: Sequence[int], index: int) -> int:
    return values[index % len(values)]


@define(eq=False)
class ScriptedExternal:
    """An owner of external KV that answers as the scenario's `remote` entries say.

    Attributes:
        script: {id: `remote` entry} of the requests that have one.
        log: the calls since `take_log`, in the form of the recordings.
        loads, sends: {id: updates left until its load has landed, until its blocks are free}.
    """

    script: Mapping[str, Mapping[str, Any]]
    log: list[list[Any]] = field(factory=list)
    loads: dict[str, int] = field(factory=dict)
    sends: dict[str, int] = field(factory=dict)
    _num_deferred: dict[str, int] = field(factory=dict)

    @hookimpl
    def lookup_external(self, request: Request, hit: Hit) -> ExternalHit | Answer:
        """What is stored elsewhere after the local hit."""
        entry, local = self.script.get(request.request_id), hit.num_local_tokens
        answer: ExternalHit | Answer = ExternalHit(0)
        if entry is not None and self._defers(request.request_id, entry):
            answer = LATER
        elif entry is not None:
            is_async = entry["mode"] == "async"
            most = request.num_tokens - (0 if is_async else 1)
            num_tokens = max(0, min(entry["matched_tokens"], most) - local)
            answer = ExternalHit(num_tokens, is_async and num_tokens > 0)
        told = [None, False] if isinstance(answer, Answer) else [answer.num_tokens, answer.is_async]
        self.log.append(["lookup", request.request_id, local, *told])
        return answer

    @hookimpl
    def external_allocated(self, request: Request, block_ids: list[int], hit: Hit) -> None:
        """Blocks for a load, or for an admission without one."""
        name, num_tokens = request.request_id, hit.num_external_tokens
        self.log.append(["allocated", name, list(block_ids), num_tokens])
        if hit.is_async:
            self.loads[name] = self.script[name].get("load_updates", 1)

    @hookimpl
    def store_external(self, request: Request, block_ids: list[int]) -> None:
        """The request has ended; its blocks may have to stay for a while."""
        name = request.request_id
        updates = self.script.get(name, {}).get("delay_free_updates") or 0
        self.log.append(["finished", name, list(block_ids), bool(updates)])
        if updates:
            self.sends[name] = updates

    @hookimpl
    def may_release(self, request: Request) -> bool:
        """Not while its blocks are being sent; the report of that frees them."""
        return request.request_id not in self.sends

    def take_log(self) -> list[list[Any]]:
        """The calls since the last time."""
        log, self.log = self.log, []
        return log

    def tick(self) -> tuple[list[str], list[str]]:
        """One update has come: ids whose loads have landed, ids whose stores are through."""
        return _count_down(self.loads), _count_down(self.sends)

    def _defers(self, name: str, entry: Mapping[str, Any]) -> bool:
        left = self._num_deferred.get(name, entry.get("defer_lookups", 0))
        self._num_deferred[name] = max(0, left - 1)
        return bool(left > 0)


def _count_down(timers: dict[str, int]) -> list[str]:
    done = []
    for name in sorted(timers):
        timers[name] -= 1
        if timers[name] <= 0:
            done.append(name)
            del timers[name]
    return done


def remote_entries(requests: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """{id: `remote` entry} of the scenario's requests that have one."""
    return {request["id"]: request["remote"] for request in requests if request.get("remote")}
