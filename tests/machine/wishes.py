"""What a user may ask for, drawn from a table of values, simplest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from attrs import frozen

from framework import EncoderInput, Request, SamplingParams

if TYPE_CHECKING:
    from random import Random

WISHES: Final[dict[str, tuple[Any, ...]]] = {
    "number": tuple(range(10)),
    "family": (0, 0, 0, 1, 2),
    "length": (4, 1, 2, 3, 5, 7, 8, 9, 11, 13, 16, 17, 20, 24, 31, 40, 63),
    "tail": (0, 0, 1, 3),
    "max_tokens": (3, 1, 2, 5, 8, 13, 30, None),
    "min_tokens": (0, 0, 2),
    "stop": ((), (), (1,), (0, 7)),
    "has_eos": (False, True),
    "adapter": (None, None, None, "a", "b"),
    "cache_salt": (None, None, None, "a", "b"),
    "image": (None, None, None, None, "a", "b"),
    "image_at": (0, 2, 5),
    "priority": (1, 0, 2),
    "arrival_time": (0.0, 1.0, 2.0),
    "needs_pooling": (False,) * 9 + (True,),
}


@frozen(kw_only=True)
class Wish:
    """One choice of each; requests of one family share leading tokens."""

    number: int
    family: int
    length: int
    tail: int
    max_tokens: int | None
    min_tokens: int
    stop: tuple[int, ...]
    has_eos: bool
    adapter: str | None
    cache_salt: str | None
    image: str | None
    image_at: int
    priority: int
    arrival_time: float
    needs_pooling: bool

    @classmethod
    def drawn(cls, random: Random) -> Wish:
        """Any combination."""
        return cls(**{name: random.choice(values) for name, values in WISHES.items()})

    @property
    def prompt(self) -> list[int]:
        """Family 0 repeats itself, which n-gram drafts need."""
        period = 3 if self.family == 0 else 100
        base = [10 + 100 * self.family + place % period for place in range(self.length)]
        num_own = min(self.tail, self.length)
        return base[: self.length - num_own] + [1000 + self.number] * num_own

    def request(self) -> Request:
        """A new request for it."""
        has_image = self.image is not None and self.image_at < self.length
        images = [EncoderInput(content_id=f"{self.image}", position=self.image_at, num_tokens=1)]
        params = SamplingParams(
            max_tokens=self.max_tokens,
            min_tokens=min(self.min_tokens, self.max_tokens or 9),
            stop_token_ids=self.stop,
        )
        return Request(
            f"r{self.number}",
            self.prompt,
            params,
            arrival_time=self.arrival_time,
            priority=self.priority,
            adapter=self.adapter,
            cache_salt=self.cache_salt,
            encoder_inputs=images if has_image else (),
            eos_token_ids=(3,) if self.has_eos else (),
            needs_pooling=self.needs_pooling,
        )


def model_seed(request: Request) -> int:
    """Whatever the output depends on: equal ones must give equal tokens."""
    images = [(item.content_id, item.position) for item in request.encoder_inputs]
    key = (request.prompt_token_ids, request.adapter, request.cache_salt, images)
    return crc32(repr(key).encode())
