"""`resolve` equals pluggy: same result, same exception, same calls, on random stacks."""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import define

from framework import HOLD, hookimpl
from framework.hooks import resolve
from framework.hookspecs import KIND_OF, PARAMETERS, Collect, Limit, Observe, OwnOrder, SetUp
from framework.stack import build_manager

NUM_SEEDS = 600
SEVERAL = [hook for hook, kind in KIND_OF.items() if kind is not OwnOrder]
BODY_PARTS = ["answer"] * 20 + ["raise", "stop"]
FAULTS = ["raise before", "no yield", "raise after", "second yield"]
WRAPPER_PARTS = ["pass", "edit", "swallow"] * 3 + FAULTS


class BoomError(Exception):
    """What a misbehaving implementation raises."""


@define(eq=False)
class Actor:
    """A plugin with one implementation that does what its part says and logs that it did."""

    name: str
    part: str
    answer: Any
    log: list[tuple[Any, ...]]

    def speak(self, args: tuple[Any, ...]) -> Any:
        self.log.append((self.name, "body", args))
        if self.part == "raise":
            raise BoomError(self.name)
        if self.part == "stop":
            raise StopIteration(self.name)
        return self.answer

    def wrap(self, args: tuple[Any, ...]) -> Any:
        self.log.append((self.name, "before", args))
        if self.part == "raise before":
            raise BoomError(self.name)
        if self.part == "no yield":
            return "unheard"
        try:
            result = yield
        except BaseException as error:
            self.log.append((self.name, "caught", type(error), str(error)))
            if self.part != "swallow":
                raise
            return self.answer
        self.log.append((self.name, "after", repr(result)))
        if self.part == "raise after":
            raise BoomError(self.name)
        if self.part == "second yield":
            yield
        return self.answer if self.part == "edit" else result


def actor(rng: random.Random, hook: str, name: str, log: list[tuple[Any, ...]]) -> Actor:
    """A plugin of a class of its own, whose method names some arguments in some order."""
    parameters = PARAMETERS[hook]
    named = rng.sample(parameters, rng.randint(0, len(parameters)))
    if rng.random() < 0.3:
        named = list(parameters)
    is_wrapper = rng.random() < 0.3
    line = "return (yield from self.wrap(args))" if is_wrapper else "return self.speak(args)"
    values = "".join(f"{each}, " for each in named)
    source = f"def {hook}(self, {values}):\n    args = ({values})\n    {line}\n"
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    place = rng.choice([{}, {}, {"tryfirst": True}, {"trylast": True}])
    method = hookimpl(wrapper=is_wrapper, **place)(namespace[hook])
    part = rng.choice(WRAPPER_PARTS if is_wrapper else BODY_PARTS)
    return type("Part", (Actor,), {hook: method})(
        name, part, answer(rng, hook, name, is_wrapper), log
    )


def drawn_hook(rng: random.Random) -> str:
    """Limits, which combine in two ways, come as often as all the rest."""
    limits = [hook for hook in SEVERAL if KIND_OF[hook] in (Limit, Collect)]
    return rng.choice(rng.choice([limits, SEVERAL]))


def answer(rng: random.Random, hook: str, name: str, is_wrapper: bool) -> Any:
    """Something that an implementation, or a wrapper in its place, may give."""
    kind = KIND_OF[hook]
    if kind is Limit:
        one = rng.choice([None, 0, 3, 9] if hook.startswith("cap") else [None, True, False])
    elif kind is Collect:
        one = rng.choice([None, {}, {f"field of {name}": 1}])
    else:
        one = rng.choice([None, None, 0, False, (), [], 7, HOLD])
    if is_wrapper and kind in (Limit, Collect):
        return [] if one is None else [one]
    return one


def combined(hook: str, result: Any) -> Any:
    """What the loop gets for the result of a pluggy call."""
    kind = KIND_OF[hook]
    if kind in (Observe, SetUp):
        return None
    if kind is Collect:
        return {key: value for each in result for key, value in each.items()}
    if kind is not Limit:
        return result
    return min(result, default=None) if hook.startswith("cap") else all(result)


def outcome(call: Any, log: list[tuple[Any, ...]], values: tuple[str, ...]) -> tuple[Any, ...]:
    log.clear()
    try:
        return "returned", call(*values), list(log)
    except (BoomError, StopIteration, RuntimeError) as error:
        return "raised", type(error), str(error), list(log)


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_resolve_equals_pluggy(seed: int, trace: bool) -> None:
    rng = random.Random(seed)
    hook = drawn_hook(rng)
    log: list[tuple[Any, ...]] = []
    manager = build_manager([])
    for number in range(rng.randint(1, 6)):
        plugin = actor(rng, hook, f"p{number}", log)
        manager.register(plugin, plugin.name)
    caller = getattr(manager.hook, hook)

    def by_pluggy(*values: str) -> Any:
        return combined(hook, caller(**dict(zip(PARAMETERS[hook], values, strict=True))))

    def by_us(*values: str) -> Any:
        result = getattr(resolve(manager, trace), hook)(*values)
        return None if KIND_OF[hook] in (Observe, SetUp) else result

    values = tuple(f"<{name}>" for name in PARAMETERS[hook])
    assert outcome(by_us, log, values) == outcome(by_pluggy, log, values)


def test_the_random_stacks_cover_every_part() -> None:
    seen = set()
    for seed in range(NUM_SEEDS):
        rng = random.Random(seed)
        hook = drawn_hook(rng)
        plugins = [actor(rng, hook, f"p{n}", []) for n in range(rng.randint(1, 6))]
        seen |= {plugin.part for plugin in plugins} | {hook}
    assert len(seen) == len(SEVERAL) + 3 + len(set(WRAPPER_PARTS))
