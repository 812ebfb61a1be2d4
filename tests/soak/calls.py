"""Calls drawn at random: what they ask for, and how their client behaves."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from tests.soak.offline import MOST_TOKENS, Wish

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.offline import Offline

MANNERS: Final = {
    "read": 44,  # a stream, to its end
    "read_whole": 12,  # no stream
    "read_slowly": 10,  # with pauses and small buffers
    "leave_midway": 13,  # after some of the stream
    "leave_early": 6,  # before the first byte of the answer, or before the end of the call
    "send_rubbish": 8,
    "send_twice": 7,  # two calls of one X-Request-Id at once
}
SHARED: Final = tuple(f"Chapter {number}. " + "It was a dark night. " * 12 for number in range(4))
NEVER: Final = "\x01never"
NUM_TENANTS: Final = 7
KNOWN_SOURCES: Final[tuple[dict[str, Any], ...]] = (
    {"prompt": "The capital of France is"},
    {"prompt": "Once upon a time, in a small village by the sea,"},
    {"prompt": "def fibonacci(n):"},
    {"prompt": "1, 2, 3, 4, 5,"},
    {"prompt": SHARED[0] + "Then"},
    {"prompt": SHARED[0] + "Suddenly"},
    {"messages": [{"role": "user", "content": "Why is the sky blue?"}]},
    {"messages": [{"role": "user", "content": "Name three colours."}]},
)
RUBBISH: Final[tuple[tuple[bytes, int], ...]] = (
    (b'{"prompt": "cut', 400),
    (b"[]", 400),
    (b"{}", 400),
    (b'{"prompt": ""}', 400),
    (b'{"prompt": "a", "max_tokens": -3}', 400),
    (b'{"prompt": "a", "max_tokens": "many"}', 400),
    (b'{"prompt": "a", "n": 100000}', 400),
    (b'{"prompt": "a", "temperature": -1}', 400),
    (b'{"prompt": "a", "priority": "high"}', 400),
    (b'{"prompt": "a", "model": "another"}', 404),
    (b'{"prompt": [1, 2, 99999999]}', 400),
    (b'{"prompt": "a", "logit_bias": {"3": 1}}', 400),
    (b'{"prompt": "a", "max_tokens": 5, "stream_options": {"include_usage": true}}', 400),
    (b'{"prompt": [' + b"5," * 9000 + b"5]}", 400),
)


@frozen(kw_only=True)
class Call:
    """One call.

    Attributes:
        manner: how its client behaves.
        name: its X-Request-Id, or None.
        path, body: what is sent.
        wish: what decides its choices' outputs.
        num_choices: how many.
        patience: between 0 and 1, for whatever the manner needs.
    """

    manner: str
    name: str | None
    path: str
    body: bytes
    wish: Wish
    num_choices: int
    patience: float

    @property
    def headers(self) -> dict[str, str]:
        """What is sent besides the body."""
        return {} if self.name is None else {"X-Request-Id": self.name}

    def choice_name(self, name: str, index: int) -> str:
        """The request id of a choice of a call of that name."""
        return name if self.num_choices == 1 else f"{name}-{index}"


@define(eq=False)
class Draws:
    """The calls of one client; the same seed and number give the same calls."""

    offline: Offline
    seed: int
    client: int
    is_scripted: bool
    random: Random = field(init=False)
    _count: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.random = Random(f"{self.seed}/{self.client}")

    def draw(self) -> Call:
        """The next one."""
        random, self._count = self.random, self._count + 1
        manner = random.choices(list(MANNERS), list(MANNERS.values()))[0]
        is_named = manner == "send_twice" or random.random() < 0.8
        name = f"soak-{self.client}-{self._count}" if is_named else None
        source = self._source() if self.is_scripted else random.choice(KNOWN_SOURCES)
        num_choices = random.choice((1, 1, 1, 1, 2, 3))
        wish = self._wish(manner, source, name if num_choices == 1 else None)
        return Call(
            manner=manner,
            name=name,
            path="/v1/completions" if "prompt" in source else "/v1/chat/completions",
            body=json.dumps(self._body(manner, wish, num_choices)).encode(),
            wish=wish,
            num_choices=num_choices,
            patience=random.random(),
        )

    def _source(self) -> dict[str, Any]:
        random = self.random
        words = " ".join(str(random.randrange(1000)) for _ in range(random.randrange(1, 40)))
        kinds: tuple[Callable[[], dict[str, Any]], ...] = (
            lambda: {"prompt": words},
            lambda: {"prompt": random.choice(SHARED) + words},
            lambda: {"prompt": [random.randrange(40_000) for _ in range(random.randrange(1, 200))]},
            lambda: {"messages": [{"role": "user", "content": words}]},
        )
        return random.choice(kinds)()

    def _wish(self, manner: str, source: dict[str, Any], name: str | None) -> Wish:
        random = self.random
        if self.is_scripted:
            most = 400 if manner == "read_slowly" else random.choice((4, 30, 60))
        else:
            most = MOST_TOKENS
        wish = Wish(
            source=source,
            max_tokens=random.randint(1, most),
            ignore_eos=random.random() < 0.5,
        )
        if random.random() > 0.3:
            return wish
        return Wish(
            source=source,
            max_tokens=wish.max_tokens,
            ignore_eos=wish.ignore_eos,
            stop=self._stop(wish, name),
        )

    def _stop(self, wish: Wish, name: str | None) -> str:
        """Letters that the output will have, if its request id is known; or something else."""
        random = self.random
        if name is None and self.is_scripted:
            return NEVER
        text = self.offline.expected(name or "", wish).text
        at = random.randrange(len(text) + 1)
        found = text[at : at + random.randint(1, 4)]
        return found if found.isascii() and found.isalpha() else NEVER

    def _body(self, manner: str, wish: Wish, num_choices: int) -> dict[str, Any]:
        random, stream = self.random, manner != "read_whole"
        options = {
            "model": "smollm2",
            "n": num_choices,
            "stop": None if wish.stop is None else random.choice((wish.stop, [NEVER, wish.stop])),
            "user": f"tenant-{random.randrange(NUM_TENANTS)}" if random.random() < 0.8 else None,
            "priority": random.choice((None, -1, 0, 3)),
            "seed": random.choice((None, 5)),
        }
        body = {
            **wish.source,
            "max_tokens": wish.max_tokens,
            "temperature": 0,
            "ignore_eos": wish.ignore_eos,
            "stream": stream,
            **{name: value for name, value in options.items() if value is not None},
        }
        if stream and random.random() < 0.5:
            usage = {"include_usage": True, "continuous_usage_stats": manner == "read_slowly"}
            body["stream_options"] = usage
        return body
