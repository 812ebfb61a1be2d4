"""Explanation: the life of one request in plain sentences, read from a recording.

A step in which a request waits has one cause: its own refusal; else others that were admitted, or
tried and refused, before it was looked at ("outranked by"); else running requests that found no
memory, which ends admissions; else that nobody was tried.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from framework.study.recorded import Lasting, Recorded
    from framework.study.workload import Arrival

REASONS = {
    "SLOT": "no free slot",
    "BUDGET": "no token budget left",
    "BLOCKS": "no memory",
    "GATE": "vetoed by the policy",
}
ENDINGS = {
    "stopped": "it was complete",
    "length": "it had reached its limit",
    "aborted": "it was aborted",
    "rejected": "the policy shed it",
    "error": "of an error",
}
MOST_NAMED = 3


def explain(recorded: Recorded, request_id: str) -> list[str]:
    """The sentences.

    Raises:
        ConfigError: the workload has no such request.
    """
    life = Life(recorded.arrival(request_id))
    for lasting in recorded.lasting():
        life.step(lasting)
        if life.has_ended:
            return life.sentences
    life.close(recorded.last)
    return life.sentences


@define(eq=False)
class Life:
    """One request while its recording is read.

    Attributes:
        arrival: who.
        sentences: its life so far.
        has_ended: whether it is over.
    """

    arrival: Arrival
    sentences: list[str] = field(factory=list, init=False)
    has_ended: bool = field(default=False, init=False)
    _time: float | None = field(default=None, init=False)
    _waits_since: float | None = field(default=None, init=False)
    _causes: Counter[str] = field(factory=Counter, init=False)
    _ahead: Counter[str] = field(factory=Counter, init=False)
    _runs: Counter[str] = field(factory=Counter, init=False)
    _first_token: float | None = field(default=None, init=False)
    _latest: float = field(default=0.0, init=False)

    def step(self, lasting: Lasting) -> None:
        """Read the next step."""
        step, name = lasting.step, self.arrival.request_id
        self._latest = lasting.end
        for arrived, time in step.get("arrived", ()):
            if arrived == name:
                self._arrive(time)
        self._look_for_end(step)
        if self._time is None or self.has_ended:
            return
        for admitted, cached, resumed in step.get("admitted", ()):
            if admitted == name:
                self._admit(step, cached, resumed)
        victim = next((each for each in step.get("victims", ()) if each[0] == name), None)
        if victim is not None:
            self._lose_place(step, victim)
        elif self._waits_since is not None:
            self._wait(step)
        else:
            self._run(lasting)

    def close(self, last: Mapping[str, Any]) -> None:
        """The recording is through, and the request has not ended."""
        self._look_for_end(last)
        name = self.arrival.request_id
        if self.has_ended:
            return
        if name in last.get("errors", {}):
            self.sentences = [f"{name} was refused on arrival: {last['errors'][name]}."]
        elif self._time is None:
            self.sentences.append(f"{name} has not arrived before the recording ended.")
        else:
            self._tell_stay(last.get("end", self._latest))
            self.sentences.append("It had not ended when the recording did.")

    def _arrive(self, time: float) -> None:
        self._time = self._waits_since = time
        arrival = self.arrival
        of = "" if arrival.tenant is None else f" of tenant {arrival.tenant}"
        more = f", priority {arrival.priority}" if arrival.priority else ""
        self.sentences.append(
            f"{arrival.request_id}{of} arrived at {time:.3f} s with {arrival.prompt_len} prompt "
            f"tokens{more}; it was to give {arrival.output_len}, which only the runner knew."
        )

    def _admit(self, step: Mapping[str, Any], cached: int, resumed: bool) -> None:
        self._tell_stay(step["time"])
        self._waits_since = None
        self._runs.clear()
        self.sentences.append(
            f"{'Admitted again' if resumed else 'Admitted'} at step {step['step']}, at "
            f"{step['time']:.3f} s, with {_count(cached, 'token') if cached else 'nothing'} "
            "from the cache."
        )

    def _wait(self, step: Mapping[str, Any]) -> None:
        name = self.arrival.request_id
        refused = step.get("refused", {})
        ahead = [each[0] for each in step.get("admitted", ())] + list(refused)
        if name in refused:
            self._causes[REASONS[refused[name]]] += 1
        elif name in step.get("loading", ()):
            self._causes["its KV was on its way"] += 1
        elif ahead:
            self._causes["outranked"] += 1
            self._ahead.update(ahead)
        elif any(not displaced for *_, displaced in step.get("victims", ())):
            self._causes["running requests had no memory"] += 1
        else:
            self._causes["nobody was tried"] += 1

    def _tell_stay(self, until: float) -> None:
        """What it waited for, or how it ran."""
        if self._waits_since is None:
            if self._runs["sat out"]:
                steps = _count(self._runs["steps"], "step")
                self.sentences.append(
                    f"While it ran it got tokens in {steps} and sat out {self._runs['sat out']}."
                )
            return
        num_steps = self._causes.total()
        if num_steps:
            told = [f"{count} x {self._cause(name)}" for name, count in self._causes.most_common()]
            self.sentences.append(
                f"Waited {_count(num_steps, 'step')}, {until - self._waits_since:.3f} s: "
                f"{', '.join(told)}."
            )
        self._causes.clear()
        self._ahead.clear()

    def _cause(self, name: str) -> str:
        if name != "outranked":
            return name
        named = [each for each, _ in self._ahead.most_common(MOST_NAMED)]
        others = len(self._ahead) - len(named)
        more = f" and {others} other{'s' if others > 1 else ''}" if others else ""
        return f"outranked by {', '.join(named)}{more}"

    def _run(self, lasting: Lasting) -> None:
        step, name = lasting.step, self.arrival.request_id
        if name not in step.get("plan", {}):
            self._runs["sat out"] += 1
            return
        self._runs["steps"] += 1
        if name in step.get("partial", ()):
            self._runs["chunks"] += 1
        elif self._first_token is None:
            self._first_token = lasting.end
            assert self._time is not None
            chunks = self._runs["chunks"] + 1
            self.sentences.append(
                f"First token at {lasting.end:.3f} s, {lasting.end - self._time:.3f} s after "
                f"arrival; its prompt took {_count(chunks, 'step')}."
            )

    def _lose_place(self, step: Mapping[str, Any], victim: tuple[str, str, int, bool]) -> None:
        _, mode, lost, displaced = victim
        self._tell_stay(step["time"])
        self._waits_since = step["time"]
        why = "a waiting request took its place" if displaced else "blocks had run out"
        self.sentences.append(
            f"Preempted at step {step['step']}, at {step['time']:.3f} s ({mode}, "
            f"{_count(lost, 'token')} lost): {why}."
        )

    def _look_for_end(self, step: Mapping[str, Any]) -> None:
        for name, how, time, count in step.get("ended", ()):
            if name != self.arrival.request_id or self._time is None:
                continue
            self._tell_stay(time)
            self.has_ended = True
            self.sentences.append(
                f"Ended at {time:.3f} s, {time - self._time:.3f} s after arrival, with "
                f"{_count(count, 'token')}: {ENDINGS[how]}."
            )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
