"""Workloads made by rule, from a SPEC such as on a command line, or from the same names in Python.

    poisson:rate=8,n=1000,prompt=lognormal(1500,0.7),output=lognormal(200,1.0),tenants=a*3|b
    gamma:rate=8,cv=4,n=1000        constant:rate=8        closed:users=16,think=exponential(5)
    poisson:rate=1,turns=geometric(4),think=exponential(10),prompt=200          (chats)
    poisson:rate=12,tenants=a,prefixes=5,prefix=1000 + poisson:rate=24,tenants=b  (side by side)

Every option draws from a random stream of its own, so changing one leaves the others as they were.
"""

from __future__ import annotations

from heapq import merge
from random import Random
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from framework.errors import bad_field
from framework.study.draws import whole
from framework.study.recipe import read_spec
from framework.study.workload import Arrival, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from framework.study.draws import Draw
    from framework.study.recipe import Recipe

MOST_PARTS = 16
NAMES_PER_PART = 100_000_000
FIRST_OWN_NAME = 1_000_000


def make_workload(spec: str = "poisson", /, *, seed: int = 0, **options: Any) -> Workload:
    """A workload made by rule.

    Args:
        spec: 'kind', 'kind:name=value,...', or several of them joined by ' + '.
        seed: of every random stream.
        options: more names and values of `Recipe` and `Classes`, for every part of the spec.

    Raises:
        ConfigError: a name is unknown, or a value is not allowed.
    """
    texts = [part.strip() for part in spec.split(" + ")]
    if len(texts) > MOST_PARTS:
        raise bad_field("workload", spec, f"at most {MOST_PARTS} parts")
    streams = []
    counts: dict[str, int] = {}
    weights: dict[str, float] = {}
    for part, text in enumerate(texts):
        recipe, classes = read_spec(text, options)
        made = _Maker(recipe, f"{seed}/{part}" if part else str(seed), part, counts)
        streams.append(classes.lay_over(list(made.arrivals()), f"{seed}/{part}"))
        weights |= classes.tenant_weights
    source = {"made_by": spec, "seed": seed, **{name: str(options[name]) for name in options}}
    return Workload(
        name=spec.partition(":")[0] if len(texts) == 1 else spec,
        arrivals=streams[0] if len(streams) == 1 else _merged(streams),
        source=source,
        counts=counts,
        tenant_weights=weights,
    )


@frozen
class _Maker:
    recipe: Recipe
    seed: str
    part: int
    counts: dict[str, int]
    _random: dict[str, Random] = field(factory=dict, init=False)

    def arrivals(self) -> Iterator[Arrival]:
        """Parents before children; roots by time."""
        if self.recipe.kind == "closed":
            yield from self._users()
            return
        number, time = 0, 0.0
        while number < self.recipe.n:
            time += self._gap()
            left = self.recipe.n - number
            parent: Arrival | None = None
            for _ in range(min(left, whole(self._draw("turns")))):
                parent = self._next(number, time, parent, parent)
                number += 1
                yield parent

    def _users(self) -> Iterator[Arrival]:
        """Round after round; in each, every user sends one request."""
        before: list[Arrival | None] = [None] * self.recipe.users
        left = [0] * self.recipe.users
        for number in range(self.recipe.n):
            user = number % self.recipe.users
            parent, time = before[user], 0.0
            context = parent if left[user] else None
            if not left[user]:
                left[user] = whole(self._draw("turns"))
            left[user] -= 1
            if parent is None:
                time = self._draw("think")
            sent = before[user] = self._next(number, time, parent, context)
            yield sent

    def _next(
        self, number: int, time: float, parent: Arrival | None, context: Arrival | None
    ) -> Arrival:
        """A request that waits for `parent`; its prompt goes on from `context`, if any."""
        prompt, output = self._lengths()
        name = f"{'r' if not self.part else f'{self.part}r'}{number}"
        if parent is not None:
            time = self._draw("think")
        if context is not None:
            length = context.prompt_len + context.output_len + prompt
            if length + output <= self.recipe.max_len:
                return Arrival(
                    request_id=name,
                    time=time,
                    prompt_len=length,
                    output_len=output,
                    parent=context.request_id,
                )
            self._count("chats that began anew")
        pieces = self._prefix()
        room = self.recipe.max_len - sum(length for _, length in pieces)
        if prompt > room - 1 or output > room - min(prompt, room - 1):
            self._count("clipped")
            prompt = min(prompt, room - 1)
            output = min(output, room - prompt)
        if parent is not None:  # named in whole: otherwise it would begin as its parent did
            own = self.part * NAMES_PER_PART + FIRST_OWN_NAME + number
            pieces = (*pieces, (own, prompt))
            length = sum(size for _, size in pieces)
        else:
            length = prompt + sum(size for _, size in pieces)
        return Arrival(
            request_id=name,
            time=time,
            prompt_len=length,
            output_len=output,
            prefix=pieces,
            parent=None if parent is None else parent.request_id,
        )

    def _prefix(self) -> tuple[tuple[int, int], ...]:
        if not self.recipe.prefixes:
            return ()
        group = self._stream("group").randrange(self.recipe.prefixes)
        length = whole(self.recipe.prefix.sample(Random(f"{self.seed}/prefix/{group}")))
        return ((self.part * NAMES_PER_PART + group, min(length, self.recipe.max_len - 2)),)

    def _lengths(self) -> tuple[int, int]:
        if self.recipe.lengths:
            prompt, output = self._stream("lengths").choice(self.recipe.lengths)
            return prompt, output
        return whole(self._draw("prompt")), whole(self._draw("output"))

    def _gap(self) -> float:
        recipe, random = self.recipe, self._stream("gap")
        if recipe.kind == "constant":
            return 1.0 / recipe.rate
        if recipe.kind == "poisson":
            return random.expovariate(recipe.rate)
        shape = 1.0 / recipe.cv**2
        return random.gammavariate(shape, 1.0 / (shape * recipe.rate))

    def _draw(self, name: str) -> float:
        draw: Draw = getattr(self.recipe, name)
        return draw.sample(self._stream(name))

    def _stream(self, name: str) -> Random:
        return self._random.setdefault(name, Random(f"{self.seed}/{name}"))

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def _merged(streams: Sequence[Sequence[Arrival]]) -> list[Arrival]:
    """By the time of each chat's first request; a chat stays together."""
    return [
        arrival
        for _, _, chat in merge(*(_chats(part, stream) for part, stream in enumerate(streams)))
        for arrival in chat
    ]


def _chats(part: int, stream: Sequence[Arrival]) -> Iterator[tuple[float, tuple[int, int], Any]]:
    """(time, tie, arrivals) of each run of arrivals that begins with one without parent."""
    starts = [place for place, arrival in enumerate(stream) if arrival.parent is None]
    for start, end in zip(starts, [*starts[1:], len(stream)], strict=True):
        yield stream[start].time, (part, start), stream[start:end]
