"""ServerSettings: what the server is told besides the engine."""

from __future__ import annotations

import re
from typing import Any

import attrs
from attrs import field, frozen

from framework.errors import bad_field

DEFAULT_MAX_BODY_BYTES = 8 << 20
DEFAULT_MAX_QUEUE = 1024
DEFAULT_DRAIN_S = 10.0


def _at_least_one(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise bad_field(attribute.name, value, "an int of at least 1")


def _key(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A header carries it: what stands at its ends, or cannot be printed, would be lost."""
    if value is None:
        return
    good = isinstance(value, str) and value.isascii() and value.isprintable()
    if not (good and value and value == value.strip()):
        allowed = "a string of at least one ASCII character, all printable, no blanks at its ends"
        raise bad_field(attribute.name, "***", allowed)


def _another_key(settings: ServerSettings, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and value == settings.api_key:
        raise bad_field(attribute.name, "***", "another key than api_key, which clients have")


def _names(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not value or not all(isinstance(name, str) and name for name in value):
        raise bad_field(attribute.name, value, "one or more non-empty strings")


def _origins(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    for origin in value:
        if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
            raise bad_field(attribute.name, origin, "https://HOST or http://HOST:PORT, or *")


@frozen(kw_only=True)
class ServerSettings:
    """Names, key and limits.

    Attributes:
        model_names: what clients may call the model; the first one is told.
        api_key: what clients must bring, or None.
        admin_key: what admin calls must bring; None = nobody may make any.
        cors_origins: web pages that may ask, such as "https://chat.example"; "*" = all.
        restarts: whether another engine takes the place of a dead one; else the server ends.
        max_body_bytes: longest body of a request.
        max_queue: most unfinished requests; None = no limit.
        max_output_tokens: most output tokens of a choice; None = what fits.
        max_per_tenant: most unfinished requests of one `user`; None = no limit.
    """

    model_names: tuple[str, ...] = field(validator=_names)
    api_key: str | None = field(default=None, validator=_key, repr=False)
    admin_key: str | None = field(default=None, validator=[_key, _another_key], repr=False)
    cors_origins: tuple[str, ...] = field(default=(), validator=_origins)
    restarts: bool = False
    max_body_bytes: int = field(default=DEFAULT_MAX_BODY_BYTES, validator=_at_least_one)
    max_queue: int | None = field(default=DEFAULT_MAX_QUEUE, validator=_at_least_one)
    max_output_tokens: int | None = field(default=None, validator=_at_least_one)
    max_per_tenant: int | None = field(default=None, validator=_at_least_one)
