"""How near virtual time comes to real time: predict a run of a real model, then run it.

    python benchmarks/fidelity.py --json F      (about 7 minutes on 2 cores; let nothing else run)

A latency model is fitted to steps of a calibration workload. Another workload, requests that come
in bursts, is then simulated under each policy, and after that served by the real runner in real
time: the same token ids at the same moments, outputs of the same lengths. Compared are mean, p50
and p95 of TTFT and TPOT, and the order of the policies.

`--toy` puts a runner that sleeps in the model's place: seconds, and no figures about the model.
Exit status: 0 = within the limits (or --toy), 1 = not, 2 = bad input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleeping import Sleeper

from framework import SamplingParams, SchedulerConfig
from framework.engine.models import LoadedModel, load_model, resolve_model
from framework.engine.playback import Playback
from framework.engine.prompts import Prompt
from framework.errors import HeadwayError
from framework.metrics import summarise
from framework.stack import parse_stack
from framework.study.calibrating import MeasuredFront, measure_runner
from framework.study.fitting import fit_latency, judge, write_rows
from framework.study.run import full_stack, is_oracle, simulate_policy
from framework.study.synthetic import make_workload
from framework.study.workload import prompt_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework import LinearLatency
    from framework.study.fitting import Fit, Row
    from framework.study.workload import Workload

POLICIES = ("fcfs", "sjf_predicted+oracle", "prefill_first", "sarathi(chunk=16)")
REQUESTS = (
    "gamma:rate={rate},n={n},cv=3,max_len=500,prompt=lognormal(48,0.8),output=lognormal(16,1)"
)
AT_ONCE = 1e5
LIMITS = {"mean": 0.10, "p50": 0.10, "p95": 0.20}
JUDGED = ("ttft_s", "tpot_s")
MEASURES = (*JUDGED, "e2e_s")
RANKED = ("ttft_s", "e2e_s")
TIE = 0.02
"""Policies nearer than this in virtual time have no order to lose."""


def load(options: argparse.Namespace) -> LoadedModel:
    """The real model, or the one that sleeps; few slots and a small budget, so policies differ."""
    config = SchedulerConfig(
        max_num_seqs=6,
        max_num_batched_tokens=128,
        max_model_len=512,
        num_blocks=256,
        seed=options.seed,
    )
    if options.toy:
        return LoadedModel(Sleeper(), None, config)
    return load_model(
        resolve_model(options.model), config, runner=options.runner, num_threads=options.threads
    )


def requests_to_serve(
    options: argparse.Namespace, config: SchedulerConfig, latency: LinearLatency
) -> Workload:
    """Bursts at a share of the rate at which the first policy serves requests that wait."""

    def coming(rate: float) -> Workload:
        return make_workload(REQUESTS.format(rate=rate, n=options.requests), seed=options.seed)

    stack = parse_stack(options.policy[0])
    found = simulate_policy(coming(AT_ONCE), stack, config=config, latency=latency)
    assert found.outcome.requests_per_s is not None
    return coming(options.load * found.outcome.requests_per_s)


def simulate(
    policy: str, workload: Workload, config: SchedulerConfig, latency: LinearLatency
) -> dict[str, Any]:
    """Its latencies in virtual time."""
    run = simulate_policy(workload, parse_stack(policy), config=config, latency=latency)
    found = {name: figures(getattr(run.outcome, name)) for name in MEASURES}
    return {**found, "num_steps": run.outcome.num_steps, "duration_s": run.meter.end}


def serve(policy: str, workload: Workload, model: LoadedModel) -> tuple[dict[str, Any], list[Row]]:
    """Its latencies in real time, and every step of the run.

    The runner is the one that was calibrated: memory that is touched first costs time of its own.
    """
    prompts = [
        Prompt(
            prompt_token_ids=prompt_tokens(arrival, number),
            request_id=arrival.request_id,
            arrival_s=arrival.time,
            sampling_params=SamplingParams(
                max_tokens=arrival.output_len, temperature=0.0, ignore_eos=True
            ),
        )
        for number, arrival in enumerate(workload.arrivals)
    ]
    with MeasuredFront(model, full_stack(parse_stack(policy), workload)) as front:
        plugins: list[Any] = [plugin for _, plugin in front.core.scheduler.plugins]
        for oracle in filter(is_oracle, plugins):
            for arrival in workload.arrivals:
                oracle.expect(arrival.request_id, arrival.output_len)
        playback = Playback(policy, front, prompts)
        playback.run(lambda _: None)
        front.drain()
    summary = summarise([live.timeline for live in playback.lives])
    found = {name: figures(getattr(summary, name)) for name in MEASURES}
    counts = {"num_steps": len(front.rows), "duration_s": summary.duration_s}
    return {**found, **counts}, front.rows


def figures(distribution: Any) -> dict[str, float]:
    """Mean and two percentiles."""
    return {name: getattr(distribution, name) for name in LIMITS}


def compare(policy: str, simulated: dict[str, Any], real: dict[str, Any]) -> dict[str, Any]:
    """Simulated by real, figure by figure."""
    ratios, misses = {}, []
    for measure in MEASURES:
        for name, limit in LIMITS.items():
            ratio = simulated[measure][name] / real[measure][name]
            ratios[f"{measure}.{name}"] = ratio
            if measure in JUDGED and abs(ratio - 1) > limit:
                misses.append(f"{measure}.{name}")
    found = {"policy": policy, "simulated": simulated, "real": real}
    return {**found, "ratios": ratios, "misses": misses}


def rank(rows: Sequence[dict[str, Any]], measure: str) -> dict[str, Any]:
    """The order of the policies by a mean in both worlds, and the pairs that changed places."""
    means = {
        world: {row["policy"]: row[world][measure]["mean"] for row in rows}
        for world in ("simulated", "real")
    }
    swapped = []
    for one, two in combinations(means["real"], 2):
        gap, real_gap = (
            means[world][two] / means[world][one] - 1 for world in ("simulated", "real")
        )
        if gap * real_gap <= 0 and abs(gap) >= TIE:
            swapped.append({"pair": [one, two], "simulated": gap, "real": real_gap})
    orders = {world: sorted(found, key=found.__getitem__) for world, found in means.items()}
    return {**orders, "same": not swapped, "swapped": swapped}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Calibrate, predict, serve, compare; everything is printed as it is known."""
    model = load(options)
    config = model.config
    measured = measure_runner(model, seconds=options.seconds)
    if options.json:
        write_rows(measured, options.json.with_suffix(".steps.csv"))
    fit = fit_latency(measured, has_curve=options.curve, name="calibrated")
    print(f"calibrated on {fit.num_rows} steps: mean error {fit.mape:.1%}", flush=True)
    workload = requests_to_serve(options, config, fit.latency)
    predicted = {
        policy: simulate(policy, workload, config, fit.latency) for policy in options.policy
    }
    total = sum(each["duration_s"] for each in predicted.values())
    count = len(workload.arrivals)
    print(f"{count} requests under {len(predicted)} policies: predicted {total:.0f} s", flush=True)
    rows = []
    for policy, simulated in predicted.items():
        real, steps = serve(policy, workload, model)
        row = {**compare(policy, simulated, real), "steps": about(judge(fit.latency, steps))}
        rows.append(row)
        show(row)
    model.runner.close()
    rankings = {measure: rank(rows, measure) for measure in RANKED}
    for measure, found in rankings.items():
        verdict = "the same order" if found["same"] else f"another order: {found['swapped']}"
        print(f"by mean {measure}: {' < '.join(found['real'])}; in virtual time {verdict}")
    return {
        "calibration": {**about(fit), "latency": fit.latency.as_dict()},
        "workload": {"source": dict(workload.source), "digest": workload.digest, "n": count},
        "limits": LIMITS,
        "policies": rows,
        "rankings": rankings,
        "passed": not rows[0]["misses"] and all(found["same"] for found in rankings.values()),
    }


def about(fit: Fit) -> dict[str, float]:
    """How well single steps are predicted; `bias` far from 1 means another speed of the machine."""
    return {"num_steps": fit.num_rows, "mape": fit.mape, "bias": fit.bias}


def show(row: dict[str, Any]) -> None:
    """One policy's figures."""
    steps = row["steps"]
    print(f"{row['policy']}: steps {steps['mape']:.1%} off each, {steps['bias'] - 1:+.1%} together")
    for measure in MEASURES:
        parts = [
            f"{name} {row['simulated'][measure][name]:.4f} for {row['real'][measure][name]:.4f} "
            f"({row['ratios'][f'{measure}.{name}'] - 1:+.1%})"
            for name in LIMITS
        ]
        print(f"  {measure}: {', '.join(parts)}", flush=True)


def main() -> int:
    """Run and write; see the module's docstring for the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--model", default="smollm2", metavar="M")
    parser.add_argument("--runner", default="torch")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--policy", action="append", metavar="STACK", help="the first is judged")
    parser.add_argument("--requests", type=int, metavar="N")
    parser.add_argument("--load", type=float, default=0.5, help="share of the first one's capacity")
    parser.add_argument("--seconds", type=float, help="of calibration")
    parser.add_argument("--curve", action="store_true", help="fit a curve, not a line, over tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--toy", action="store_true", help="a runner that sleeps, few requests")
    options = parser.parse_args()
    options.policy = options.policy or list(POLICIES)
    options.requests = options.requests or (24 if options.toy else 300)
    options.seconds = options.seconds or (1.0 if options.toy else 60.0)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        data = run(options)
    except HeadwayError as error:
        print(f"fidelity: error: {error}", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    return 0 if options.toy or data["passed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
