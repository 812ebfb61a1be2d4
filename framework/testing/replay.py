"""Drive our scheduler by the scenario of a recording, in steps of the recording's form.

One step does, in this order: add, abort, schedule, update with the oldest step in flight. In async
mode a second step is planned before the first one's results come in. The form of recordings is
described in tests/oracle/README.md.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from framework.config import SchedulerConfig
from framework.errors import bad_field
from framework.output import RunnerOutput
from framework.request import Request
from framework.sampling import SamplingParams
from framework.scheduler import Scheduler
from framework.testing.form import kept, planned
from framework.testing.script import ScenarioRunner, ScriptedExternal, remote_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from framework.output import SchedulerOutput

STEP_LIMIT: Final = 5000
DETAIL_LIMIT: Final = 64
"""Blocks up to which a recording tells the order of the free queue."""
POLICIES: Final = ("fcfs", "priority")
CORE_FIELDS: Final = (
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "max_num_seqs",
    "max_num_active_seqs",
    "max_model_len",
    "block_size",
    "num_blocks",
    "num_spec_tokens",
    "async_scheduling",
)
CONFIG_KEYS: Final = (
    *CORE_FIELDS,
    "enable_prefix_caching",
    "reserve_full_prompt",
    "watermark",
    "num_lookahead_tokens",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "policy",
    "kv_connector",
)
"""What a recording's config must tell."""


def stack_of(config: Mapping[str, Any]) -> list[str]:
    """The plugins, by name and with arguments, that a recording's config stands for.

    Raises:
        ConfigError: the policy is none of the recorded ones.
    """
    policy = config["policy"]
    if policy not in POLICIES:
        raise bad_field("policy", policy, " or ".join(map(repr, POLICIES)))
    stack = [
        f"kv_blocks(enable_prefix_caching={config['enable_prefix_caching']}, "
        f"reserve_full_prompt={config['reserve_full_prompt']}, "
        f"watermark={config['watermark']}, "
        f"num_lookahead_tokens={config['num_lookahead_tokens']})"
    ]
    cap = config["long_prefill_token_threshold"] or None
    fair_share = config["long_prefill_token_threshold_adaptive"]
    split = config["enable_chunked_prefill"]
    if split or cap:
        stack.append(f"chunked_prefill(cap={cap}, fair_share={fair_share}, split={split})")
    if config["num_spec_tokens"]:
        stack.append("spec_decode(method='runner', pad=True)")
    return [*stack, policy]


class Replay:
    """One recording's scenario on our scheduler. Iterate once, for the steps.

    Attributes:
        step: number of the step under way.
        end: how it ended, as in the recording; None before that.
        scheduler: the one that is driven.
    """

    def __init__(self, recording: Mapping[str, Any]) -> None:
        config, scenario = recording["config"], recording["scenario"]
        self._requests: list[Mapping[str, Any]] = scenario["requests"]
        self._state_fields: list[str] = recording["request_state_fields"]
        self._max_steps: int = scenario.get("max_steps", STEP_LIMIT)
        self._runner = ScenarioRunner(
            {request["id"]: request for request in self._requests}, config["num_spec_tokens"]
        )
        self._external: ScriptedExternal | None = None
        stack: list[object] = list(stack_of(config))
        if config["kv_connector"]:
            self._external = ScriptedExternal(remote_entries(self._requests))
            stack.append(self._external)
        limits = {name: config[name] for name in CORE_FIELDS}
        self.scheduler = Scheduler(SchedulerConfig.from_mapping(limits), stack)
        self._shows_queue = config["num_blocks"] <= DETAIL_LIMIT
        self._drafts_in_sync = bool(config["num_spec_tokens"] and not config["async_scheduling"])
        self._depth = 2 if config["async_scheduling"] else 1
        self._added: dict[str, Request] = {}
        self._last_states: dict[str, list[Any]] = {}
        self._in_flight: deque[tuple[int, SchedulerOutput]] = deque()
        self.step = 0
        self.end: str | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        arrivals = (request["arrive_step"] for request in self._requests)
        aborts = (request.get("abort_at_step") or 0 for request in self._requests)
        last_event = max([*arrivals, *aborts], default=-1)
        while self.step <= last_event or self._in_flight or self.scheduler.has_requests():
            if self.step >= self._max_steps:
                self.end = "max_steps"
                return
            yield self._one_step()
            self.step += 1
        self.end = "all_finished"

    def final(self) -> dict[str, dict[str, Any]]:
        """How every request stands at the end."""
        return {
            name: {
                "status": request.status.name,
                "output_token_ids": request.output_token_ids,
                "num_preemptions": request.num_preemptions,
            }
            for name, request in self._added.items()
        }

    def _one_step(self) -> dict[str, Any]:
        record = {"step": self.step, **self._arrivals()}
        may_go_on = False
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            if self._external is not None:
                record["connector"] = self._external.take_log()
            record["schedule"] = planned(output)
            record["after_schedule"] = self._state()
            self._in_flight.append((self.step, output))
            more = output.total_num_scheduled_tokens > 0 or self.scheduler.has_requests()
            may_go_on = len(self._in_flight) < self._depth and more
        elif not self._in_flight:
            record["idle"] = True
        if self._in_flight and not may_go_on:
            record["update"] = self._update(*self._in_flight.popleft())
            record["after_update"] = self._state()
        return record

    def _arrivals(self) -> dict[str, list[str]]:
        added = [request for request in self._requests if request["arrive_step"] == self.step]
        for entry in added:
            request = _request_of(entry)
            self._added[entry["id"]] = request
            self.scheduler.add_request(request)
        aborted = [
            request["id"] for request in self._requests if request.get("abort_at_step") == self.step
        ]
        for name in aborted:
            self.scheduler.abort(name)
        events = {"added": [entry["id"] for entry in added], "aborted": aborted}
        return {kind: names for kind, names in events.items() if names}

    def _update(self, number: int, output: SchedulerOutput) -> dict[str, Any]:
        sampled = self._runner.sample(output)
        drafts: dict[str, list[int]] = {}
        if self._drafts_in_sync:
            drafts = {
                name: self._runner.propose(name) for name, tokens in sampled.items() if tokens
            }
        from_runner = RunnerOutput([*sampled.values()], draft_token_ids=dict(drafts))
        record: dict[str, Any] = {"of_step": number, "sampled": sampled}
        if self._external is not None:
            received, sent = self._external.tick()
            from_runner.finished_recving, from_runner.finished_sending = received, sent
            if received or sent:
                record |= {"finished_recving": received, "finished_sending": sent}
        result = self.scheduler.update_from_output(output, from_runner)
        record["outputs"] = kept(result)
        if self._external is not None and (calls := self._external.take_log()):
            record["connector"] = calls
        if self._drafts_in_sync:
            record["drafts"] = {
                name: tokens for name, tokens in drafts.items() if not self._added[name].is_finished
            }
        return record

    def _state(self) -> dict[str, Any]:
        scheduler, kv = self.scheduler, self.scheduler.kv
        assert kv is not None
        state: dict[str, Any] = {
            "running": [request.request_id for request in scheduler.running],
            "waiting": [request.request_id for request in scheduler.waiting_requests()],
            "free_blocks": kv.num_free_blocks,
        }
        if self._shows_queue:
            pool: Any = kv  # the owner of blocks shows more of itself than policies may rely on
            state["free_queue"] = list(pool.free_block_ids())
            state["reusable_blocks"] = sorted(pool.reusable_block_ids())
        state["requests"] = self._changed_states()
        return state

    def _changed_states(self) -> dict[str, list[Any]]:
        changed = {}
        for name, request in self._added.items():
            state = [
                request.status.name if field == "status" else getattr(request, field)
                for field in self._state_fields
            ]
            if self._last_states.get(name) != state:
                self._last_states[name] = changed[name] = state
        return changed


def _request_of(entry: Mapping[str, Any]) -> Request:
    params = SamplingParams(
        max_tokens=entry["max_tokens"], stop_token_ids=entry.get("stop_token_ids", ())
    )
    return Request(
        entry["id"],
        entry["prompt_token_ids"],
        params,
        arrival_time=float(entry["arrival_time"]),
        priority=entry.get("priority", 0),
    )
