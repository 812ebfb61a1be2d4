"""Scenarios: a few requests and the limits of a server, small enough to print and read.

A scenario is data, and prints itself as code that runs the failing check again.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import field, frozen

from framework.config import SchedulerConfig
from framework.latency import LinearLatency
from framework.request import Slo
from framework.study.workload import Arrival, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

LATENCY: Final = LinearLatency(
    name="conformance", base_ms=8.0, token_ms=0.0625, context_ms=0.0001, request_ms=0.0078125
)
"""A small server."""
SLOW: Final = LinearLatency(name="slow", base_ms=100.0, token_ms=0.0625)
"""A step takes a tenth of a second, so that seconds of waiting are a few steps."""
LIMITS: Final = ("max_num_batched_tokens", "max_num_seqs", "num_blocks", "block_size")
PRIORITIES: Final = (0, 0, 5)


@frozen(kw_only=True)
class Scenario:
    """What arrives at what server.

    Attributes:
        arrivals: requests, by time.
        config: the limits.
        latency: how long steps take.
        maker: the call of this module that makes it, or "".
    """

    arrivals: Sequence[Arrival]
    config: SchedulerConfig = field(factory=SchedulerConfig)
    latency: LinearLatency = LATENCY
    maker: str = ""

    @property
    def workload(self) -> Workload:
        """The arrivals, for a study."""
        return Workload(name="scenario", arrivals=self.arrivals)

    @property
    def size(self) -> tuple[int, ...]:
        """Smaller is simpler."""
        arrivals = self.arrivals
        tokens = sum(each.prompt_len + each.output_len for each in arrivals)
        odd = sum(bool(each.time) + bool(each.tenant) + bool(each.priority) for each in arrivals)
        odd += sum((each.slo is not None) + bool(each.prefix) for each in arrivals)
        limits = sum(getattr(self.config, name).bit_length() for name in LIMITS)
        return len(arrivals), tokens, odd, limits

    def code(self, plugins: Sequence[object], check: str) -> str:
        """Python that runs one check on this scenario again."""
        if self.maker:
            return (
                "from framework.testing.conformance import check_scenario\n"
                f"from framework.testing.scenarios import {self.maker.partition('(')[0]}\n\n"
                f"check_scenario({list(map(spec_text, plugins))}, {check!r}, {self.maker})\n"
            )
        arrivals = "".join(f"            {_call(each)},\n" for each in self.arrivals)
        slo = "Slo, " if any(each.slo for each in self.arrivals) else ""
        latency = "" if self.latency == LATENCY else f"        latency={_call(self.latency)},\n"
        imports = "LinearLatency, SchedulerConfig" if latency else "SchedulerConfig"
        return (
            f"from framework import {imports}{', Slo' if slo else ''}\n"
            "from framework.study.workload import Arrival\n"
            "from framework.testing.conformance import check_scenario\n"
            "from framework.testing.scenarios import Scenario\n\n"
            "check_scenario(\n"
            f"    {list(map(spec_text, plugins))},\n"
            f"    {check!r},\n"
            "    Scenario(\n"
            f"        arrivals=[\n{arrivals}        ],\n"
            f"        config={_call(self.config)},\n{latency}"
            "    ),\n)\n"
        )


def spec_text(plugin: object) -> str:
    """A plugin as one would write it in a stack."""
    if isinstance(plugin, str):
        return plugin
    kind = plugin if isinstance(plugin, type) else type(plugin)
    return f"{kind.__module__}:{kind.__qualname__}"


def random_scenario(seed: int, num_requests: int = 24) -> Scenario:
    """Bursts, long and short requests, tenants, priorities, promises, shared beginnings.

    Every third one has little memory, so that requests lose their places.
    """
    random = Random(f"{seed}/scenario")
    time, arrivals = 0.0, []
    for number in range(num_requests):
        time += random.choice((0.0, 0.0, 0.0078125, 0.0625, 0.25))
        prompt = random.choice((1, 7, 16, 33, 100, 190))
        prefix = ((random.randrange(3), 32),) if prompt > 32 and random.random() < 0.5 else ()
        slo = Slo(ttft_s=random.choice((0.25, 4.0)), tpot_s=0.125)
        arrivals.append(
            Arrival(
                request_id=f"r{number}",
                time=time,
                prompt_len=prompt,
                output_len=random.choice((1, 2, 5, 12, 40)),
                prefix=prefix,
                tenant=random.choice((None, "a", "b")),
                priority=random.choice(PRIORITIES),
                slo=random.choice((None, slo)),
            )
        )
    config = SchedulerConfig(
        max_num_batched_tokens=random.choice((32, 64, 256)),
        max_num_seqs=random.choice((2, 4, 16)),
        num_blocks=20 if seed % 3 == 2 else random.choice((60, 200)),
        max_model_len=512,
        seed=seed,
    )
    return Scenario(arrivals=arrivals, config=config)


def of_lengths(lengths: Sequence[tuple[int, int]], gap: float = 0.0, **limits: Any) -> Scenario:
    """Requests of (prompt, output) tokens, so many seconds apart."""
    arrivals = [
        Arrival(request_id=f"r{number}", time=number * gap, prompt_len=prompt, output_len=output)
        for number, (prompt, output) in enumerate(lengths)
    ]
    config = SchedulerConfig(**{"max_model_len": 512, "num_blocks": 400, **limits})
    return Scenario(arrivals=arrivals, config=config)


def tight() -> Scenario:
    """Memory for one request's need and not a block more."""
    lengths = [(40, 24), (30, 20), (40, 24), (10, 12), (38, 22), (1, 1)]
    return of_lengths(lengths, gap=0.03125, num_blocks=5, max_num_seqs=4)


def identical() -> Scenario:
    """Twelve equal requests at once, for four slots."""
    return of_lengths([(24, 6)] * 12, max_num_seqs=4)


def flood(handicap: str) -> Scenario:
    """One request among many that arrive for twenty-four seconds, faster than they are served.

    Args:
        handicap: what speaks against the one, which is called "probe": "long", a long prompt and
            output; "last", the least urgent priority; "cold", the only prompt not in the cache.
    """
    arrivals = [
        Arrival(
            request_id=f"r{number}",
            time=number * 0.08,
            prompt_len=40,
            output_len=1,
            prefix=((1, 32),) if handicap == "cold" else (),
        )
        for number in range(300)
    ]
    is_long = handicap == "long"
    probe = Arrival(
        request_id="probe",
        time=1.0,
        prompt_len=300 if is_long else 40,
        output_len=64 if is_long else 1,
        priority=9 if handicap == "last" else 0,
    )
    config = SchedulerConfig(max_num_seqs=1, num_blocks=100, max_model_len=512)
    by_time = sorted([*arrivals, probe], key=lambda each: each.time)
    return Scenario(arrivals=by_time, config=config, latency=SLOW, maker=f"flood({handicap!r})")


def busy_server() -> Scenario:
    """Sixty-four slots and a queue, for taking times."""
    lengths = [(64, 16 + number % 17) for number in range(160)]
    scenario = of_lengths(lengths, gap=0.001, max_num_seqs=64)
    return attrs.evolve(scenario, maker="busy_server()")


def scaled(scenario: Scenario, factor: float) -> Scenario:
    """All times so many times as long: arrivals, steps, promises; exact for powers of two."""
    arrivals = [
        attrs.evolve(each, time=each.time * factor, slo=_scaled_slo(each.slo, factor))
        for each in scenario.arrivals
    ]
    terms = [each.name for each in attrs.fields(LinearLatency) if each.name.endswith("_ms")]
    latency = scenario.latency.scaled(**dict.fromkeys(terms, factor))
    return attrs.evolve(scenario, arrivals=arrivals, latency=latency)


def longer(scenario: Scenario) -> Scenario:
    """The same with longer outputs, another order of them, and nothing that tells of it.

    None is longer than the limit that every request of the scenario may see.
    """
    most = Workload(name="", arrivals=scenario.arrivals).max_output_len
    arrivals = [
        attrs.evolve(each, output_len=min(most, each.output_len + 1 + number * 13 % 29))
        for number, each in enumerate(scenario.arrivals)
    ]
    return attrs.evolve(scenario, arrivals=arrivals)


def _scaled_slo(slo: Slo | None, factor: float) -> Slo | None:
    if slo is None:
        return None
    fields = attrs.asdict(slo)
    return Slo(**{name: value and value * factor for name, value in fields.items()})


def _call(record: Any) -> str:
    """A record as the call that makes it, defaults left out."""
    told = []
    for each in attrs.fields(type(record)):
        value = getattr(record, each.name)
        if each.init and value != each.default:
            told.append(f"{each.name}={_call(value) if attrs.has(type(value)) else repr(value)}")
    return f"{type(record).__name__}({', '.join(told)})"
