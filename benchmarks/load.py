"""A public load generator against `headway serve`: do its figures and those of /metrics agree?

    python benchmarks/load.py --json F      (about 3 minutes on 2 cores; let nothing else run)

guidellm lives in an environment of its own, build/guidellm, which is made if it is not there (1.5
GB; only that needs the network). It sends chat calls with made-up prompts to the small real model;
compared are the means of the time to the first token and between tokens, as the client sees them,
and as the server's own histograms have them (sum / count) for the same requests.

Exit status: 0 = both within 10 %, 1 = not, 2 = bad input.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.request import urlopen

from framework.engine.models import resolve_model

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
GENERATOR: Final = ROOT / "build" / "guidellm"
REQUIRES: Final = (["torch==2.13.0"], ["torch==2.13.0", "guidellm==0.8.1"])
"""In this order: torch goes first and alone. The rest of its environment is its own affair."""
LIMIT: Final = 0.10
COMPARED: Final = {
    "TTFT": ("time_to_first_token_ms", "time_to_first_token_seconds"),
    "ITL": ("inter_token_latency_ms", "inter_token_latency_seconds"),
}
"""Name, and what both sides call it."""


def generator() -> Path:
    """The program, after it was installed if it had to be."""
    program = GENERATOR / "bin" / "guidellm"
    if not program.exists():
        print(f"making {GENERATOR.relative_to(ROOT)} ...", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", GENERATOR], check=True)
        pip = [str(GENERATOR / "bin" / "pip"), "--disable-pip-version-check", "install", "--quiet"]
        for names in REQUIRES:
            subprocess.run([*pip, *names], check=True)
    return program


@contextmanager
def serving(model: str) -> Iterator[str]:
    """A server of that model; gives its URL."""
    headway = str(Path(sys.executable).with_name("headway"))
    command = [headway, "serve", model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            if found is None:
                raise SystemExit(f"the server does not listen; it says {line!r}")
            yield found.group()
        finally:
            process.terminate()


def histograms(url: str) -> dict[str, float]:
    """Sums and counts of the server's histograms."""
    with urlopen(f"{url}/metrics") as answer:
        told = answer.read().decode()
    found = re.findall(r"^vllm:(\w+_(?:sum|count))\{[^}]*\} (\S+)$", told, re.MULTILINE)
    return {name: float(value) for name, value in found}


def run_generator(url: str, options: argparse.Namespace, file: Path, count: int) -> dict[str, Any]:
    """Send so many requests; the generator's figures of them."""
    directory = resolve_model(options.model)
    sizes = f"prompt_tokens={options.prompt_tokens},output_tokens={options.output_tokens}"
    command: list[str | Path] = [
        *(generator(), "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={url},model={options.model},http2=false"),
        *("--profile", f"kind=concurrent,streams={options.streams}"),
        *("--constraint", f"kind=max_requests,count={count}"),
        *("--tokenizer", f"kind=huggingface_auto,model={directory}"),
        *("--data", f"kind=synthetic_text,{sizes}"),
        *("--output", f"kind=json,path={file}"),
    ]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(command, env=offline, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"guidellm ended with status {done.returncode}:\n{done.stderr[-3000:]}")
    [found] = json.loads(file.read_text())["benchmarks"]
    metrics: dict[str, Any] = found["metrics"]
    return metrics


def compare(metrics: dict[str, Any], before: dict[str, float], after: dict[str, float]) -> Any:
    """Both means of each figure in milliseconds, and how far they are apart."""
    rows = {}
    for name, (theirs, ours) in COMPARED.items():
        seconds, count = (after[f"{ours}_{of}"] - before[f"{ours}_{of}"] for of in ("sum", "count"))
        client_ms, server_ms = metrics[theirs]["successful"]["mean"], 1000 * seconds / count
        apart = server_ms / client_ms - 1
        rows[name] = {
            "client_ms": client_ms,
            "server_ms": server_ms,
            "apart": apart,
            "passed": abs(apart) <= LIMIT,
        }
    return rows


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--requests", type=int, default=30)
    parser.add_argument("--streams", type=int, default=2, help="requests at once")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args()
    for name in ("requests", "streams", "prompt_tokens", "output_tokens"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: got {getattr(options, name)}, allowed: at least 1")
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: {options.json.parent} is not a directory")
    generator()
    with tempfile.TemporaryDirectory() as folder, serving(options.model) as url:
        file = Path(folder) / "load.json"
        run_generator(url, options, file, options.streams)  # memory is touched for the first time
        before = histograms(url)
        metrics = run_generator(url, options, file, options.requests)
        rows = compare(metrics, before, histograms(url))
    return report(metrics["request_totals"], rows, options)


def report(totals: dict[str, int], rows: dict[str, Any], options: argparse.Namespace) -> int:
    """The figures, the headline, and whether they pass."""
    complete = totals["successful"] == totals["total"] == options.requests
    figures = {"requests": totals, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"{totals['successful']} of {options.requests} requests completed")
    for name, row in rows.items():
        print(
            f"{name}: {row['client_ms']:.1f} ms at the client, {row['server_ms']:.1f} ms by "
            f"/metrics, {100 * row['apart']:+.1f} % {'PASS' if row['passed'] else 'FAIL'}"
        )
    return 0 if complete and all(row["passed"] for row in rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
