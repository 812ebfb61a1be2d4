"""How many requests a second the simulation gets through, on one core.

    python benchmarks/sim_speed.py --requests 1000 100000 --json F

Lengths as in the Azure 2023 conversation trace (lognormal prompts of 1,155 and outputs of 211
tokens on average), arrivals far above capacity, at most 128 running, prefix cache and all metrics
on. Each size has a process of its own, so that start and memory are its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

STARTED = time.perf_counter()
ROOT = Path(__file__).resolve().parents[1]
MEAN_PROMPT, SIGMA_PROMPT = 1155, 0.7
MEAN_OUTPUT, SIGMA_OUTPUT = 211, 1.0
RATE = 7.0
"""Requests a virtual second: about what one A100 serves, so the batch fills and the queue stays."""


def measure(count: int) -> dict[str, float]:
    """Run `count` requests in this process."""
    sys.path.insert(0, str(ROOT))
    import random  # noqa: PLC0415
    from math import log  # noqa: PLC0415

    from framework.latency import load_latency  # noqa: PLC0415
    from framework.study.run import default_config, simulate_policy  # noqa: PLC0415
    from framework.study.workload import Arrival, Workload  # noqa: PLC0415

    draw, now, arrivals = random.Random(0), 0.0, []
    for number in range(count):
        now += draw.expovariate(RATE)
        prompt = draw.lognormvariate(log(MEAN_PROMPT) - SIGMA_PROMPT**2 / 2, SIGMA_PROMPT)
        output = draw.lognormvariate(log(MEAN_OUTPUT) - SIGMA_OUTPUT**2 / 2, SIGMA_OUTPUT)
        arrivals.append(
            Arrival(
                request_id=f"r{number}",
                time=now,
                prompt_len=min(4000, max(1, int(prompt))),
                output_len=min(1000, max(1, int(output))),
            )
        )
    workload = Workload(name="azure-like", arrivals=arrivals)
    config = default_config(load_latency("llama3-8b-a100"), max_num_seqs=128)
    started = time.perf_counter()
    run = simulate_policy(workload, ["fcfs"], config=config)
    seconds = time.perf_counter() - started
    outcome = run.outcome
    assert outcome.reasons == {"stop": count}, outcome.reasons
    return {
        "requests": count,
        "req_per_s": count / seconds,
        "start_s": started - STARTED,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "steps": outcome.num_steps,
        "mean_running": outcome.mean_running or 0.0,
        "us_per_step": 1e6 * seconds / outcome.num_steps,
    }


def main() -> int:
    """Measure each size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, nargs="+", default=[1000, 20_000], metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.here)))
        return 0
    rows = []
    for count in options.requests:
        command = [sys.executable, __file__, "--here", str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout))
        print({name: round(value, 3) for name, value in rows[-1].items()}, flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
