"""A plugin that fails in any hook: one request or one step is told, and the engine goes on."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from framework.engine.child.incoming import sampling_params
from framework.engine.child.receiving import NewRequest
from framework.engine.child.running import build_engine
from framework.engine.protocol import Abort, Ended, Outputs, Reply, Shutdown, Stopped, Utility
from framework.hookspecs import KIND_OF, PARAMETERS, Collect, Decide, Limit, Observe
from framework.request import Request
from tests.engine.engine_peers import scripted, scripted_directory, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from framework.engine.process import EngineCoreProc

STACK = ("kv_offload", "kv_blocks", "chunked_prefill", "priority(displace=True)", "spec_decode")
NAMES = [f"r{number}" for number in range(12)]
SOURCE = """
from framework import hookimpl

class Faulty:
    num_calls = 0

    def count(self, request):
        Faulty.num_calls += 1
        if {when}:
            {fault}

    @hookimpl(wrapper={wrapper})
    def {hook}(self{parameter}):
        {body}
"""
ALONE = "self.count({request}); return None"
AROUND = "result = yield; self.count({request}); return result"
BESIDE = (Decide, Limit, Collect, Observe)
SET_UP = ("scheduler_built", "kv_view")
NOT_CALLED = (
    "allocate_encoder",
    "release_encoder",
    "reset_prefix_cache",
    "predict_output_len",
    "withdraw",
)
"""No image, no call, nobody who asks for a length, and nothing to undo before the fault."""
WITHOUT = ("split_prefill", "chunked_prefill")
"""Where the cap is always below the budget, nothing is left to split."""
ONLY_IN_TURN, ONLY_AHEAD = "propose_drafts", "publish"
PEER = b"peer"


def source(hook: str, fault: str, when: str) -> str:
    """A plugin with one hook that fails, beside others or around the owner's own work."""
    is_beside = KIND_OF[hook] in BESIDE
    has_request = "request" in PARAMETERS[hook]
    return SOURCE.format(
        hook=hook,
        fault=fault,
        when=when,
        wrapper=not is_beside,
        parameter=", request" if has_request else "",
        body=(ALONE if is_beside else AROUND).format(request="request" if has_request else "None"),
    )


@define(eq=False)
class Run:
    """An engine without a process, all that it said, and how its loop ended."""

    engine: EngineCoreProc
    failure: BaseException | None = None
    stopped: Stopped | None = None
    tokens: dict[int, list[int]] = field(factory=lambda: defaultdict(list))
    ends: dict[int, list[Ended]] = field(factory=lambda: defaultdict(list))
    replies: list[tuple[int, Reply]] = field(factory=list)
    """With how many requests had ended before each."""

    def put(self, key: int, name: str, num_tokens: int = 24, **sampling: Any) -> None:
        """Send a request, the later ones more urgent."""
        params = sampling_params({"max_tokens": num_tokens, **sampling})
        tokens = [1, 2, 3, 4] * 4 + [key] * 17
        request = Request(name, tokens, params, priority=-(key // 4))
        self.engine.queue.put((PEER, NewRequest(key, request, 0)))

    def finish(self) -> None:
        """Let it drain."""
        self.engine.outbox.meet(PEER)
        self.engine.queue.put((PEER, Shutdown(drain=True)))
        thread = Thread(target=self._serve, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "the loop does not end"
        while not self.engine.outbox._queue.empty():
            self._hear(self.engine.outbox._queue.get())

    def _serve(self) -> None:
        try:
            self.engine.run_busy_loop()
        except BaseException as error:
            self.failure = error

    def _hear(self, item: Any) -> None:
        message = item[1]
        if isinstance(message, Stopped):
            self.stopped = message
        if isinstance(message, Reply):
            self.replies.append((len(self.ends), message))
        if isinstance(message, Outputs):
            for key, token_ids in zip(message.keys, message.token_ids, strict=True):
                self.tokens[key] += token_ids
            for ended in message.ended:
                self.ends[ended.key].append(ended)

    def check_others(self) -> list[Ended]:
        """Everyone ended once, and rightly or with an error; the errors."""
        kv = self.engine.core.scheduler.kv
        assert kv is not None
        assert kv.num_free_blocks == kv.num_total_blocks
        assert [len(self.ends[key]) for key in range(len(NAMES))] == [1] * len(NAMES)
        ends = [self.ends[key][0] for key in range(len(NAMES))]
        for ended, name in zip(ends, NAMES, strict=True):
            tokens = tuple(self.tokens[ended.key])
            assert tokens == tokens_of(name, 24 if ended.reason == "length" else len(tokens))
        return [ended for ended in ends if ended.reason != "length"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted_directory(tmp_path_factory.mktemp("faulty"))


@pytest.fixture
def run(directory: Path, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    folder = tempfile.mkdtemp()
    sockets = []

    def build(text: str, stack: tuple[str, ...] = STACK, **settings: Any) -> Run:
        (tmp_path / "faulty.py").write_text(text, encoding="utf-8")
        limits = {"num_blocks": 30, "block_size": 4, "max_num_seqs": 6, "num_spec_tokens": 2}
        plugins = [*stack, f"{tmp_path / 'faulty.py'}:Faulty"]
        settings = {**limits, "max_model_len": 128, "max_num_batched_tokens": 40, **settings}
        engine, inbox = build_engine(
            *scripted(directory, plugins=plugins, **settings).open(), folder, SimpleQueue()
        )
        sockets.extend([inbox.socket, engine.outbox.socket])
        return Run(engine)

    yield build
    for socket in sockets:
        socket.close(linger=0)
    shutil.rmtree(folder)


def put_all(run: Run) -> None:
    for key, name in enumerate(NAMES):
        run.put(key, name)


@pytest.mark.parametrize("async_scheduling", [False, True], ids=["in turn", "ahead"])
@pytest.mark.parametrize("hook", [hook for hook in KIND_OF if hook not in SET_UP])
def test_whichever_hook_fails_once(
    run: Callable[..., Run], hook: str, async_scheduling: bool
) -> None:
    found = run(
        source(hook, "raise ValueError('oh')", "Faulty.num_calls == 2"),
        tuple(one for one in STACK if (hook, one) != WITHOUT),
        async_scheduling=async_scheduling,
    )
    put_all(found)
    found.finish()
    assert (found.failure, found.stopped) == (None, Stopped("it was shut down", False))
    errors = found.check_others()
    assert len(errors) <= 1
    for ended in errors:
        assert f"hook {hook!r}" in (ended.error or "")
        assert repr(NAMES[ended.key]) in (ended.error or "")
    is_told = f"hook {hook!r}" in (found.engine.faults.last_error or "")
    of_other_mode = hook == (ONLY_IN_TURN if async_scheduling else ONLY_AHEAD)
    assert is_told or of_other_mode or hook in NOT_CALLED


@pytest.mark.parametrize("hook", ["compute_num_new_tokens", "order_running", "request_finished"])
@pytest.mark.parametrize("fault", ["raise SystemExit('bye')", "raise GeneratorExit", "exit(3)"])
def test_a_plugin_that_would_end_more_than_its_hook_fails_like_any(
    run: Callable[..., Run], hook: str, fault: str
) -> None:
    found = run(source(hook, fault, "Faulty.num_calls == 2"))
    put_all(found)
    found.finish()
    assert found.failure is None
    assert len(found.check_others()) <= 1
    assert "Exit" in (found.engine.faults.last_error or "")


VETO = "return request.request_id != 'r3'"
RUBBISH = {
    "select_waiting": "7",
    "order_running": "[7]",
    "compute_num_new_tokens": "'many'",
    "cap_num_new_tokens": "-1",
    "may_admit": "'maybe'",
    "is_ready": "[]",
    "pick_rejected": "[None]",
    "extend_output": "7",
    "compute_num_drafts": "1.5",
}


@pytest.mark.parametrize("hook", RUBBISH)
def test_an_answer_that_is_none_is_told_with_what_came(run: Callable[..., Run], hook: str) -> None:
    found = run(source(hook, "pass", "True").replace("return None", f"return {RUBBISH[hook]}"))
    put_all(found)
    found.finish()
    assert found.failure is None
    for ended in found.check_others():
        assert f"hook {hook!r}" in (ended.error or "")
    assert f"hook {hook!r}" in (found.engine.faults.last_error or "")


@pytest.mark.parametrize("hook", ["order_running", "step_planned", "extend_output"])
def test_a_plugin_that_fails_each_step_ends_all_after_three(
    run: Callable[..., Run], hook: str
) -> None:
    found = run(source(hook, "raise ValueError('always')", "True"))
    put_all(found)
    found.finish()
    assert found.failure is None
    errors = found.check_others()
    assert [ended.reason for ended in errors] == ["error"] * len(NAMES)
    assert all(f"hook {hook!r} in step" in (ended.error or "") for ended in errors)
    assert found.engine.faults.num_errors in (3, 4)


def test_a_request_that_a_plugin_never_gives_up_ends_alone(run: Callable[..., Run]) -> None:
    found = run(source("may_admit", "pass", "False").replace("return None", VETO))
    put_all(found)
    found.finish()
    assert found.failure is None
    (ended,) = found.check_others()
    assert (ended.key, ended.reason) == (3, "error")
    assert "'r3'" in (ended.error or "")


def test_an_error_that_cannot_be_encoded_ends_its_request_all_the_same(
    run: Callable[..., Run],
) -> None:
    fault = "raise ValueError(chr(0xd800) * 9_999)"
    found = run(source("compute_num_new_tokens", fault, "Faulty.num_calls == 1"))
    put_all(found)
    found.finish()
    (ended,) = found.check_others()
    assert "\\ud800" in (ended.error or "")
    assert len((ended.error or "").encode()) < 20_000


def test_ctrl_c_in_a_plugin_ends_the_engine_and_says_so(run: Callable[..., Run]) -> None:
    found = run(source("order_running", "raise KeyboardInterrupt", "Faulty.num_calls == 2"))
    put_all(found)
    found.finish()
    assert isinstance(found.failure, KeyboardInterrupt)
    assert found.stopped == Stopped("the engine failed: KeyboardInterrupt: ", failed=True)


class Broken:
    """A runner that fails."""

    def execute(self, output: object) -> None:
        raise ZeroDivisionError("oh")


def test_a_runner_that_fails_ends_the_engine_and_says_why(run: Callable[..., Run]) -> None:
    found = run(source("order_running", "pass", "False"))
    found.engine.core.runner = Broken()
    put_all(found)
    found.finish()
    assert isinstance(found.failure, ZeroDivisionError)
    assert found.stopped == Stopped("the engine failed: ZeroDivisionError: oh", failed=True)


def test_a_name_used_again_right_after_a_swap_gets_only_its_own_output(
    run: Callable[..., Run],
) -> None:
    found = run(source("order_running", "pass", "False"), async_scheduling=True)
    found.put(1, "again", num_tokens=50)
    found.engine._take_input()
    for _ in range(5):
        found.engine._step()
    found.engine.queue.put((PEER, Utility(1, "swap", [["fcfs"]])))
    found.engine.queue.put((PEER, Abort([1])))
    found.put(2, "again", num_tokens=8)
    found.finish()
    assert tuple(found.tokens[1]) == tokens_of("again", len(found.tokens[1]))
    assert tuple(found.tokens[2]) == tokens_of("again", 8)
    assert [ended.reason for ended in found.ends[1] + found.ends[2]] == ["abort", "length"]


HOLDING = """
from framework import hookimpl

class Faulty:
    num_calls = 0

    @hookimpl
    def may_release(self, request):
        Faulty.num_calls += 1
        return Faulty.num_calls > {most}
"""


def test_a_swap_that_waits_for_blocks_keeps_nobody_else_waiting(run: Callable[..., Run]) -> None:
    found = run(HOLDING.format(most=400), ("kv_blocks", "chunked_prefill", "fcfs"))
    put_all(found)
    found.put(50, "short", num_tokens=1)
    found.engine._take_input()
    while not found.engine.core.scheduler.has_transfers:
        found.engine._step()
    found.engine.queue.put((PEER, Utility(1, "swap", [["priority"]])))
    found.finish()
    ((num_before, reply),) = found.replies
    assert reply.value == ["kv_blocks", "chunked_prefill", "priority"]
    assert num_before > 1
    assert found.check_others() == []


def test_a_swap_does_not_wait_for_ever(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framework.engine.process.TRANSFERS_S", 0.0)
    found = run(HOLDING.format(most=10**9))
    put_all(found)
    found.engine._take_input()
    while not found.engine.core.scheduler.has_transfers:
        found.engine._step()
    found.engine.queue.put((PEER, Utility(1, "swap", [["fcfs"]])))
    found.engine._take_input()
    said = [found.engine.outbox._queue.get()[1] for _ in range(found.engine.outbox._queue.qsize())]
    (reply,) = [message for message in said if isinstance(message, Reply)]
    assert reply.kind == "PluginError" and "still hold blocks" in (reply.error or "")
