"""The two calls that generate: /v1/completions and /v1/chat/completions."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from attrs import frozen
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from framework.errors import RequestError
from framework.server.convert import Asked, from_chat, from_completion
from framework.server.desk import request_name
from framework.server.errors import ApiError, as_api_error, of_call
from framework.server.exchange import Exchange
from framework.server.room import check_length
from framework.server.schema import ChatRequest, CompletionRequest, Generation, StreamOptions
from framework.server.shapes import ChatShape, CompletionShape, Shape
from framework.server.unsupported import refuse_for_chat, refuse_for_completion
from framework.server.watch import EventStream, until_gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from framework.server.convert import Admit, Source
    from framework.server.desk import Desk
    from framework.server.settings import ServerSettings


COMPLETIONS: Final = "/v1/completions"
CHAT_COMPLETIONS: Final = "/v1/chat/completions"
GENERATING: Final = (COMPLETIONS, CHAT_COMPLETIONS)


@frozen(kw_only=True)
class Call:
    """One call, understood.

    Attributes:
        kind: what its answer's id begins with.
        name: what it is called; its requests are named after it.
        arrival: when it came, by `time.perf_counter`.
        body: what was sent.
        asked: what that means for the engine.
        shape: how the answer looks.
    """

    kind: str
    name: str
    arrival: float
    body: Generation
    asked: Asked
    shape: Shape


def generation_routes(desk: Desk, settings: ServerSettings) -> APIRouter:
    """The routes of both calls."""
    router = APIRouter()
    tokenizer, model_names = desk.engine.tokenizer, settings.model_names
    most = settings.max_output_tokens

    @router.post(COMPLETIONS)
    async def completions(request: Request, body: CompletionRequest) -> Response:
        arrival: float = request.state.arrival
        check_model(body.model, model_names)
        refuse_for_completion(body)
        name = _name(request)
        asked = from_completion(body, name, tokenizer, most, _admitting(desk, body))
        shape = CompletionShape(tokenizer, asked.echoes, asked.num_choices, body.logprobs)
        call = Call(kind="cmpl", name=name, arrival=arrival, body=body, asked=asked, shape=shape)
        return await _answer(request, desk, call, model_names[0])

    @router.post(CHAT_COMPLETIONS)
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        arrival: float = request.state.arrival
        check_model(body.model, model_names)
        refuse_for_chat(body)
        name = _name(request)
        asked = from_chat(body, name, most, _admitting(desk, body))
        shape = ChatShape(tokenizer, (body.top_logprobs or 0) if body.logprobs else None)
        call = Call(
            kind="chatcmpl", name=name, arrival=arrival, body=body, asked=asked, shape=shape
        )
        return await _answer(request, desk, call, model_names[0])

    return router


def check_model(name: str | None, served: tuple[str, ...]) -> None:
    """Raises ApiError 404 if the model of that name is not served."""
    if name is not None and name not in served:
        told = f"model: got {name!r}, allowed: {', '.join(map(repr, served))}"
        raise ApiError(404, told, code="model_not_found", param="model")


def _admitting(desk: Desk, body: Generation) -> Admit:
    """Refuses what is too much before work is done for it."""

    def admit(sources: Sequence[Source], num_choices: int) -> None:
        desk.check_room(num_choices, body.user or None)
        check_length(sources, desk.engine.info)

    return admit


def _name(request: Request) -> str:
    return request_name(request.headers.get("x-request-id"), uuid.uuid4().hex)


async def _answer(request: Request, desk: Desk, call: Call, model: str) -> Response:
    try:
        return await _begin(request, desk, call, model)
    except (ApiError, RequestError) as error:
        source = "messages" if call.asked.prompts[0].messages is not None else "prompt"
        raise of_call(as_api_error(error), call.name, source) from error


async def _begin(request: Request, desk: Desk, call: Call, model: str) -> Response:
    opening = desk.open(call.name, call.asked.prompts, call.arrival)
    job = await until_gone(request.receive, opening)  # texts may queue for the tokenizer
    is_handed_on = False
    try:
        exchange = Exchange(
            answer_id=f"{call.kind}-{call.name}",
            model=call.body.model or model,
            job=job,
            shape=call.shape,
            num_choices=call.asked.num_choices,
            options=call.body.stream_options or StreamOptions(),
        )
        headers = {"X-Request-Id": call.name}
        if not call.body.stream:
            whole = await until_gone(request.receive, exchange.whole())
            return JSONResponse(whole, headers=headers)
        # The status line waits for the first event: a refusal of the engine has a status then.
        events = exchange.events()
        first = await until_gone(request.receive, _next(events))
        stream = EventStream(job, first, events)
        stream.headers.update(headers)
        is_handed_on = True
        return stream
    finally:
        if not is_handed_on:
            await job.close()


async def _next(events: AsyncIterator[bytes]) -> bytes:
    return await anext(events)
