"""An engine in this process that answers "abcdefghij", and a caller that needs no socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
from attrs import define, field, frozen

from framework import SchedulerConfig
from framework.engine.front import Front
from framework.engine.models import LoadedModel
from framework.errors import EngineDeadError
from framework.server.app import create_app
from framework.server.settings import ServerSettings
from framework.stack import complete_stack
from runners.scripted import ScriptedRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from framework.engine.completion import Completion, LiveRequest, Piece
    from framework.engine.prompts import Prompt

ANSWER = b"abcdefghij"
ADMIN_KEY = "of the admin"


class ByteTokenizer:
    """Token ids are bytes."""

    has_chat_template = True

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self.encode("".join(f"{each['role']}: {each['content']}\n" for each in messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token_ids).decode(errors="replace")


@frozen
class Figures:
    """Stats of a front."""

    num_running: int
    num_waiting: int
    kv_usage: float | None
    counters: dict[str, Any]
    hooks: list[tuple[str, str, int, float]]
    is_paused: bool


@define(eq=False)
class FrontStream:
    """One request; whoever reads makes the steps."""

    engine: FrontEngine
    live: LiveRequest
    is_over: bool = False

    @property
    def request_id(self) -> str:
        return self.live.request.request_id

    @property
    def num_prompt_tokens(self) -> int:
        return self.live.request.num_prompt_tokens

    @property
    def completion(self) -> Completion | None:
        return self.live.completion

    def __aiter__(self) -> FrontStream:
        return self

    async def __anext__(self) -> Piece:
        while not self.live.has_piece:
            await asyncio.sleep(0)
            if self.engine.failure is not None:
                raise EngineDeadError(self.engine.failure)
            if not self.engine.is_paused and not self.live.has_piece:
                self.engine.front.step()
        if self.is_over:
            raise StopAsyncIteration
        piece = self.live.take_piece()
        self.is_over = piece.finish_reason is not None
        return piece

    async def aclose(self) -> None:
        self.is_over = True
        self.engine.front.abort(self.request_id)


@define(eq=False)
class FrontEngine:
    """The engine's face over a Front in this process."""

    front: Front
    is_paused: bool = False
    failure: str | None = None
    is_slow: bool = False
    silence_s: float = 0.0
    hooks: list[tuple[str, str, int, float]] = field(factory=list)

    @property
    def tokenizer(self) -> Any:
        return self.front.model.tokenizer

    @property
    def info(self) -> SchedulerConfig:
        return self.front.model.config

    @property
    def is_alive(self) -> bool:
        return self.failure is None

    async def submit(self, prompt: Prompt) -> FrontStream:
        if self.failure is not None:
            raise EngineDeadError(self.failure)
        return FrontStream(self, self.front.submit(prompt))

    async def abort(self, request_id: str) -> bool:
        self.front.abort(request_id)
        return True

    async def stats(self) -> Figures:
        if self.is_slow:
            await asyncio.sleep(60)
        if self.failure is not None:
            raise EngineDeadError(self.failure)
        scheduler = self.front.core.scheduler
        counters = {"num_preemptions": scheduler.counters.num_preemptions}
        counters["num_prefix_queried"] = scheduler.counters.num_prefix_queried
        running, waiting = len(scheduler.running), len(scheduler.waiting_requests())
        return Figures(running, waiting, 0.25, counters, self.hooks, self.is_paused)

    async def pause(self) -> None:
        self.is_paused = True

    async def resume(self) -> None:
        self.is_paused = False

    async def reset_prefix_cache(self) -> bool:
        return self.front.core.scheduler.reset_prefix_cache()

    async def plugins(self) -> list[str]:
        names = [name for name, _ in self.front.core.scheduler.plugins]
        return [name for name in names if name != "recorder"]

    async def swap(self, specs: list[str]) -> list[str]:
        return self.front.swap(specs)


@define(eq=False)
class Server:
    """An app over a stand-in: server("POST", "/v1/completions", json={...})."""

    engine: FrontEngine
    app: Any
    desk: Any

    def __call__(self, method: str, path: str, **rest: Any) -> httpx.Response:
        return self.run(lambda client: client.request(method, path, **rest))

    def post(self, path: str, body: Any, **rest: Any) -> httpx.Response:
        return self("POST", path, json=body, **rest)

    def run(
        self,
        work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]],
        peer: str = "127.0.0.1",
    ) -> Any:
        """The result of work with a client, in a loop of its own."""

        async def within() -> Any:
            transport = httpx.ASGITransport(
                self.app, raise_app_exceptions=False, client=(peer, 123)
            )
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await asyncio.wait_for(work(client), 60)

        return asyncio.run(within())

    @property
    def figures(self) -> Any:
        return self.app.state.figures

    def admin(self, method: str, call: str, body: Any = None, **headers: str) -> httpx.Response:
        """The answer to a call under /admin, with the key unless another one is given."""
        rest = {"Authorization": f"Bearer {ADMIN_KEY}", **headers}
        return self(method, f"/admin/{call}", json=body, headers=rest)

    def metric(self, line: str) -> float:
        """The value of one sample of /metrics."""
        lines = self("GET", "/metrics").text.splitlines()
        (found,) = [each for each in lines if each.startswith(f"{line} ")]
        return float(found.rpartition(" ")[2])


def build_server(num_blocks: int = 256, **settings: Any) -> Server:
    """A server over a fresh engine."""
    config = SchedulerConfig(block_size=4, max_model_len=256, num_blocks=num_blocks)
    runner = ScriptedRunner(lambda _, position: ANSWER[position % 10], block_size=4)
    model = LoadedModel(runner, ByteTokenizer(), config)
    engine = FrontEngine(Front(model, complete_stack(())))
    given = {"model_names": ("scripted",), "admin_key": ADMIN_KEY, **settings}
    app, desk = create_app(engine, ServerSettings(**given))
    return Server(engine, app, desk)
