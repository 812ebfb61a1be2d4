"""AsyncEngine: an engine in a process of its own, for asyncio. Text and time are kept here.

The front tokenises, sends requests, and turns tokens into text as they come. Neither side waits
for the other: a request is sent and forgotten until something comes for it.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from attrs import define, field

from framework.engine.child.incoming import sampling_fields
from framework.engine.completion import LiveRequest
from framework.engine.models import resolve_model
from framework.engine.parent.calls import Calls
from framework.engine.parent.deliveries import Deliveries
from framework.engine.parent.link import Link
from framework.engine.prompts import Prompt
from framework.engine.protocol import Abort, Add, Outputs, ProtocolError, Reply
from framework.engine.stats import Stats
from framework.engine.tokenizer import HuggingFaceTokenizer
from framework.errors import EngineDeadError, RequestError, bad_field
from framework.metrics import Timeline
from framework.sampling import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from framework.engine.parent.streams import Stream
    from framework.engine.prompts import PromptLike
    from framework.engine.protocol import EngineInfo, FromEngine
    from framework.engine.settings import EngineSettings
    from framework.engine.tokenizer import Tokenizer


@define(eq=False)
class AsyncEngine:
    """One front over one engine; make it with `start`.

    Attributes:
        tokenizer: of the engine's model.

    Example:
        >>> engine = await AsyncEngine.start(EngineSettings(model="smollm2"))
        >>> async with await engine.submit("Hello", SamplingParams(max_tokens=20)) as stream:
        ...     async for piece in stream:
        ...         print(piece.text, end="")
        >>> await engine.close()
    """

    tokenizer: Tokenizer | None
    _link: Link
    _room: asyncio.Semaphore | None
    _deliveries: Deliveries = field(init=False)
    _call: Calls = field(init=False)
    _last_number: int = field(default=0, init=False)
    _encoder: ThreadPoolExecutor = field(factory=lambda: ThreadPoolExecutor(1), init=False)

    def __attrs_post_init__(self) -> None:
        self._deliveries = Deliveries(self._send_abort, self._give_room)
        self._call = Calls(self._link, self._number)

    @classmethod
    async def start(
        cls,
        settings: EngineSettings,
        *,
        restart: bool = False,
        max_num_requests: int | None = None,
    ) -> Self:
        """Spawn an engine and wait until it serves.

        Args:
            settings: what to load; plugins are best named, since instances must be picklable.
            restart: start a new engine when the process dies.
            max_num_requests: unfinished requests beyond which `submit` waits; None = no limit.

        Raises:
            ModelError, PluginError, ConfigError: something in the settings cannot be used.
            EngineDeadError: the process ended before it was ready.
        """
        link = Link(settings, restart)
        spawned = asyncio.create_task(link.open())  # the model loads while the tokenizer does
        try:
            directory = resolve_model(settings.model)
            tokenizer = await asyncio.to_thread(HuggingFaceTokenizer, directory)
            await spawned
        except BaseException:
            spawned.cancel()
            await link.close(drain=False)
            raise
        room = None if max_num_requests is None else asyncio.Semaphore(max_num_requests)
        engine = cls(tokenizer, link, room)
        link.listen(engine._take, engine._lose_everything)
        return engine

    async def close(self, *, drain: bool = False) -> None:
        """End the engine: after the requests that it has, or at once."""
        await self._link.close(drain=drain)
        self._lose_everything("the engine was closed")
        self._encoder.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def info(self) -> EngineInfo:
        """What the engine serves; `plugins` are those it was started with."""
        return self._link.info

    @property
    def is_alive(self) -> bool:
        """Whether there is an engine to send to."""
        return self._link.failure is None

    @property
    def failure(self) -> str | None:
        """Why there is no engine now."""
        return self._link.failure

    @property
    def silence_s(self) -> float:
        """Seconds since the engine was last heard; it says something every half second."""
        return self._link.silence_s

    @property
    def num_restarts(self) -> int:
        """Times that a new engine took the place of a dead one."""
        return self._link.num_restarts

    @property
    def pid(self) -> int | None:
        """The process id of the engine."""
        return self._link.pid

    # -----------------------------------------------------------------------------------------
    # requests
    # -----------------------------------------------------------------------------------------

    @property
    def num_unfinished(self) -> int:
        """Requests of this front that have not ended."""
        return len(self._deliveries)

    async def submit(
        self, prompt: PromptLike, sampling_params: SamplingParams | None = None
    ) -> Stream:
        """Send a prompt to the engine.

        Args:
            prompt: text, a conversation, token ids, or a Prompt, which brings its own parameters.
            sampling_params: how to sample; None = the defaults.

        Raises:
            RequestError: it is refused here; the message begins with `prompt.where`.
            EngineDeadError: there is no engine.
        """
        if self.failure is not None:
            raise EngineDeadError(self.failure)
        arrival = time.monotonic()
        asked = Prompt.of(prompt, sampling_params or SamplingParams(), "prompt")
        loop = asyncio.get_running_loop()
        token_ids = await loop.run_in_executor(self._encoder, asked.encode, self.tokenizer)
        asked.check(token_ids, self.tokenizer, self.info.vocab_size)
        if self._room is not None:
            await self._room.acquire()
        try:
            return self._send(asked, token_ids, arrival)
        except BaseException as error:
            self._give_room()
            if isinstance(error, ProtocolError):
                raise RequestError(f"{asked.where}: {error}") from error
            raise

    def _send(self, prompt: Prompt, token_ids: list[int], arrival: float) -> Stream:
        key = self._number()
        name = prompt.request_id or self._link.name(key)
        if name in self._deliveries:
            raise RequestError(
                f"{prompt.where}: request_id: {name!r} is in use by an unfinished request"
            )
        request = prompt.as_request(token_ids, name, arrival)
        self._link.send(
            Add(
                key,
                name,
                token_ids,
                sampling_fields(prompt.sampling_params),
                arrival,
                prompt.priority,
                prompt.tenant,
                request.deadline,
                kv_transfer_params=prompt.kv_transfer_params,
                request_wave=self._link.wave,
            )
        )
        live = LiveRequest.of(request, Timeline(arrival, len(token_ids)), self.tokenizer)
        return self._deliveries.add(key, live)

    async def abort(self, request_id: str) -> bool:
        """End a request of this front now; False if it has none of that name."""
        return self._deliveries.leave(request_id)

    def _send_abort(self, key: int) -> None:
        """Nobody reads on; the engine need not go on."""
        if self.is_alive:
            self._link.send(Abort([key]))

    def _give_room(self) -> None:
        if self._room is not None:
            self._room.release()

    # -----------------------------------------------------------------------------------------
    # calls
    # -----------------------------------------------------------------------------------------

    async def stats(self) -> Stats:
        """How the engine stands now."""
        return Stats(**await self._call("stats"))

    async def plugins(self) -> list[str]:
        """The names of the stack, last asked first."""
        names: list[str] = await self._call("plugins")
        return names

    async def pause(self) -> None:
        """Make no further step; requests are still accepted."""
        await self._call("pause")

    async def resume(self) -> None:
        """Make steps again."""
        await self._call("resume")

    async def reset_prefix_cache(self) -> bool:
        """Forget what the prefix cache holds; False if requests hold blocks."""
        done: bool = await self._call("reset_prefix_cache")
        return done

    async def swap(self, plugins: Sequence[str]) -> list[str]:
        """Put another stack in place of the running one; every request is carried over.

        Args:
            plugins: completed with kv_blocks, chunked_prefill and fcfs where they are needed; an
                engine that takes the place of this one begins with them.

        Returns:
            The names of the new stack.

        Raises:
            PluginError, HeadwayError: it cannot be used; the old one stays.
        """
        if isinstance(plugins, str):
            raise bad_field("plugins", plugins, f"a list, such as [{plugins!r}]")
        names: list[str] = await self._call("swap", list(plugins))
        self._link.use(plugins)
        return names

    def _take(self, message: FromEngine) -> None:
        if isinstance(message, Outputs):
            self._deliveries.take(message)
        elif isinstance(message, Reply):
            self._call.answer(message)

    def _lose_everything(self, why: str) -> None:
        self._deliveries.lose(why)
        self._call.lose(why)

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number
