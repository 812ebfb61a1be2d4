"""Calls: what a front asks of its engine by name, and the answers that it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from framework.engine.protocol import Utility
from framework.errors import EngineDeadError, named

if TYPE_CHECKING:
    from framework.engine.parent.link import Link
    from framework.engine.protocol import Reply


@define(eq=False)
class Calls:
    """`await calls("stats")`: the names are the methods of `framework.engine.child.utilities`."""

    _link: Link
    _next_number: Callable[[], int]
    _waiting: dict[int, asyncio.Future[Any]] = field(factory=dict, init=False)

    async def __call__(self, name: str, *arguments: Any) -> Any:
        """The value that comes back.

        Raises:
            EngineDeadError: there is no engine, or none any more.
            HeadwayError: what the call raised there, as the same class.
        """
        number = self._next_number()
        self._link.send(Utility(number, name, list(arguments)))
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    def answer(self, reply: Reply) -> None:
        """A call has come back."""
        future = self._waiting.get(reply.call)
        if future is None or future.done():
            return
        if reply.error is None:
            future.set_result(reply.value)
        else:
            future.set_exception(named(reply.kind, reply.error))

    def lose(self, why: str) -> None:
        """Nothing will come back."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EngineDeadError(why))
