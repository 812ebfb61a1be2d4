"""Errors as OpenAI's clients expect them: a status, and {"error": {message, type, param, code}}."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from framework.errors import (
    ConfigError,
    EngineDeadError,
    HeadwayError,
    ModelError,
    PluginError,
    RequestError,
)
from framework.sampling import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from framework.server.faces import PieceLike

TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}
RETRY_AFTER_S: Final = 1
RESTART_S: Final = 5
"""About what a new engine needs."""
CODES: Final = {413: "request_too_large"}
WORDS: Final = {
    "model_attributes_type": "an object",
    "dict_type": "an object",
    "greater_than_equal": "a number of at least {ge}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "string_unicode": "text without lone surrogates",
    "extra_forbidden": "nothing: there is no such field",
}
"""Pydantic's kinds of errors whose own words are not about what is allowed."""
PARAMS: Final = {
    **{attribute.name: attribute.name for attribute in attrs.fields(SamplingParams)},
    **{
        name: name
        for name in ("prompt", "messages", "priority", "deadline_s", "kv_transfer_params")
    },
    "prompt_token_ids": "prompt",
    "tenant": "user",
}
"""What sentences of the engine call a field, and what its clients do."""
_FIELDS = "|".join(PARAMS)
_GOT = re.compile(rf"\b({_FIELDS}): got ")
_NAMED = re.compile(rf"\b({_FIELDS}): ")


class ApiError(HeadwayError):
    """An error with an HTTP status.

    Attributes:
        status: the HTTP status.
        code: a word for programs.
        param: the field of the request that is to blame, or None.
        headers: what the response carries besides.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """OpenAI's shape."""
        kind = TYPES.get(self.status, "invalid_request_error")
        told = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": told}


def bad_value(param: str, message: str) -> ApiError:
    """400: a field has a wrong value."""
    return ApiError(400, message, code="invalid_value", param=param)


def too_many(message: str, *, code: str) -> ApiError:
    """429: later it may work."""
    return ApiError(429, message, code=code, headers={"Retry-After": str(RETRY_AFTER_S)})


def as_api_error(error: BaseException) -> ApiError:
    """What a client is told of an error."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineDeadError):
        waiting = {"Retry-After": str(RESTART_S)}
        return ApiError(503, str(error), code="engine_dead", headers=waiting)
    if isinstance(error, PluginError):
        return ApiError(400, str(error), code="plugin_error", param="plugins")
    if isinstance(error, ConfigError | RequestError | ModelError):
        sentence = str(error)
        found = _GOT.search(sentence) or _NAMED.search(sentence)
        param = PARAMS[found.group(1)] if found else None
        return ApiError(400, str(error), code="invalid_value", param=param)
    what = str(error) if isinstance(error, HeadwayError) else f"{type(error).__name__}; see the log"
    return ApiError(500, f"internal error: {what}", code="internal_error")


def error_of(piece: PieceLike) -> ApiError | None:
    """The error that a request ended with, if it did."""
    sentence = piece.error or f"the request ended with {piece.finish_reason!r}"
    if piece.finish_reason == "error":
        return ApiError(500, sentence, code="request_failed")
    if piece.finish_reason != "rejected":
        return None
    if sentence.startswith("shed "):  # a policy's choice under load, not the request's fault
        return too_many(sentence, code="shed")
    return as_api_error(RequestError(sentence))


def of_call(error: ApiError, name: str, source: str) -> ApiError:
    """The error of one call in words of its client, who knows no names of requests.

    Args:
        error: what happened.
        name: what the call is called.
        source: the field that its prompts come from.
    """
    told = re.sub(rf"\brequest '{re.escape(name)}-(\d+)'", r"choice \1", str(error))
    told = told.replace(f"request {name!r}", "the request")
    param = source if error.param is None and " can never fit: " in told else error.param
    return ApiError(error.status, told, code=error.code, param=param, headers=error.headers)


def from_validation(errors: Sequence[Any]) -> ApiError:
    """Pydantic's complaint about the innermost field, as a sentence that names it."""
    first = max(errors, key=lambda error: len(_path(error)))  # the first of several
    path = _path(first)
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", first["msg"])
        return ApiError(400, f"body: not JSON: {reason}", code="invalid_json")
    if not path and first["type"] == "string_unicode":
        told = f"{_short(first['input'])}, allowed: {WORDS['string_unicode']}"
        return ApiError(400, f"body: the name of a field: got {told}", code="invalid_json")
    if not path:
        what = "empty" if first["type"] == "missing" else "no JSON object"
        return ApiError(
            400,
            f"body: it is {what}; allowed: an object, sent with the header "
            "Content-Type: application/json",
            code="invalid_json",
        )
    name = ".".join(path)
    if first["type"] == "missing":
        return bad_value(path[0], f"{name}: it is missing")
    allowed = " or ".join(dict.fromkeys(_allowed(one) for one in errors if _path(one) == path))
    return bad_value(path[0], f"{name}: got {_short(first.get('input'))}, allowed: {allowed}")


def _path(error: Any) -> tuple[str, ...]:
    """The field's place in the body, without the branches of pydantic's unions."""
    return tuple(
        str(part)
        for part in error["loc"]
        if isinstance(part, int) or (part.isidentifier() and part not in ("body", "str"))
    )


def _allowed(error: Any) -> str:
    """What would have been right."""
    if error["type"] in WORDS:
        return WORDS[error["type"]].format(**error.get("ctx", {}))
    told: str = error["msg"]
    return told.removeprefix("Input should be ").removeprefix("Value error, ")


def _short(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= 80 else f"{told[:77]}..."
