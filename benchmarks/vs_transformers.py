"""The torch runner against transformers' continuous batching: same model, requests and threads.

Each side runs in a process of its own, in turn, after a warm-up; loading is left out. Greedy, end
of sequence ignored. Prints and writes tokens per second of both, their ratio, and how many
requests have equal tokens.

Exit status: 0 = passed, 1 = a ratio below --accept, or differing tokens in float32, 2 = bad input.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WORKLOAD = Path(__file__).parents[2] / "shared" / "models" / "cpu_workload.json"
STACK = ["kv_blocks(enable_prefix_caching=False)", "chunked_prefill", "fcfs"]


def ours(requests: list[dict[str, Any]], model: str, dtype: str, threads: int) -> dict[str, Any]:
    """All requests at once through Headway's default stack."""
    from framework import Request, SamplingParams, Scheduler, SchedulerConfig  # noqa: PLC0415
    from framework.engine.models import resolve_model  # noqa: PLC0415
    from runners.torch_paged import TorchRunner  # noqa: PLC0415

    longest = max(len(item["prompt_token_ids"]) + item["max_tokens"] for item in requests)
    config = SchedulerConfig(
        max_num_batched_tokens=512,
        max_num_seqs=32,
        max_model_len=longest + 1,
        block_size=32,
        num_blocks=512,
    )
    runner = TorchRunner.from_model(resolve_model(model), config, dtype=dtype, num_threads=threads)

    def serve(items: list[dict[str, Any]]) -> dict[str, list[int]]:
        scheduler = Scheduler(config, STACK)
        added = []
        for item in items:
            params = SamplingParams(max_tokens=item["max_tokens"], temperature=0, ignore_eos=True)
            added.append(Request(str(item["id"]), item["prompt_token_ids"], params))
            scheduler.add_request(added[-1])
        while scheduler.has_requests():
            plan = scheduler.schedule()
            scheduler.update_from_output(plan, runner.execute(plan))
        return {request.request_id: request.output_token_ids for request in added}

    return _timed(serve, requests)


def peer(requests: list[dict[str, Any]], model: str, dtype: str, threads: int) -> dict[str, Any]:
    """The same through transformers' continuous batching, with explicit sizes."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, GenerationConfig  # noqa: PLC0415
    from transformers.generation import ContinuousBatchingConfig  # noqa: PLC0415

    from framework.engine.models import resolve_model  # noqa: PLC0415

    torch.set_num_threads(threads)
    loaded = AutoModelForCausalLM.from_pretrained(
        resolve_model(model), dtype=getattr(torch, dtype), attn_implementation="sdpa"
    ).eval()
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(
        auto_switch_to_flash=False,
        page_size=32,
        num_blocks=512,
        max_batch_tokens=512,
        allow_block_sharing=False,
    )

    def serve(items: list[dict[str, Any]]) -> dict[str, list[int]]:
        tokens: dict[str, list[int]] = {}
        with loaded.continuous_batching_context_manager(
            generation_config=generation, continuous_batching_config=batching
        ) as manager:
            names = {}
            for item in items:
                added = manager.add_request(
                    item["prompt_token_ids"], max_new_tokens=item["max_tokens"]
                )
                names[added] = str(item["id"])
            while len(tokens) < len(items):
                result = manager.get_result(timeout=5)
                if result is None and not manager.is_running():
                    raise RuntimeError("continuous batching ended before its requests did")
                if result is not None and result.is_finished():
                    tokens[names[result.request_id]] = list(result.generated_tokens)
        return tokens

    return _timed(serve, requests)


def _timed(serve: Any, requests: list[dict[str, Any]]) -> dict[str, Any]:
    warm = [{**requests[0], "id": "warm-up", "max_tokens": 8}]
    serve(warm)
    started = time.perf_counter()
    tokens = serve(requests)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "tokens": tokens}


def in_process(side: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one side in a fresh process."""
    command = [sys.executable, __file__, "--side", side, "--workload", str(options.workload)]
    command += ["--model", options.model, "--dtype", options.dtype]
    command += ["--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def read_workload(path: Path) -> list[dict[str, Any]]:
    """The requests of a workload file.

    Raises:
        ValueError: the file holds none, or one of them lacks a field.
    """
    try:
        requests: list[dict[str, Any]] = json.loads(path.read_text())["requests"]
        for item in requests:
            _ = item["id"], item["prompt_token_ids"], item["max_tokens"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no workload: {error!r}") from error
    if not requests:
        raise ValueError(f"{path} has no requests")
    return requests


def parsed() -> argparse.Namespace:
    """The command line; `requests` is what --workload holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", type=Path, default=WORKLOAD, metavar="FILE")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="runs of each side, in turn")
    parser.add_argument("--accept", type=float, default=3.0, help="lowest ratio that passes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--side", choices=["ours", "peer"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in ("threads", "repeats"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: got {getattr(options, name)}, allowed: at least 1")
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: {options.json.parent} is not a directory")
    try:
        options.requests = read_workload(options.workload)
    except ValueError as error:
        parser.error(f"--workload: {error}")
    return options


def main() -> int:
    """Compare, print, write."""
    options = parsed()
    if options.side:
        side = ours if options.side == "ours" else peer
        print(json.dumps(side(options.requests, options.model, options.dtype, options.threads)))
        return 0
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    for repeat in range(options.repeats):
        for side, results in runs.items():
            begun = f"run {repeat + 1} of {options.repeats}, {side}:"
            print(begun, "...", file=sys.stderr, flush=True)
            results.append(in_process(side, options))
            print(begun, f"{results[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    return report(runs, options)


def report(runs: dict[str, list[dict[str, Any]]], options: argparse.Namespace) -> int:
    """Figures, the headline, and whether they pass."""
    num_tokens = sum(item["max_tokens"] for item in options.requests)
    seconds = {side: [run["seconds"] for run in results] for side, results in runs.items()}
    speed = {side: num_tokens / statistics.median(taken) for side, taken in seconds.items()}
    ratio = speed["ours"] / speed["peer"]
    reference = runs["peer"][0]["tokens"]
    same = sum(
        all(run["tokens"].get(name) == tokens for results in runs.values() for run in results)
        for name, tokens in reference.items()
    )
    figures = {
        "ours_tok_s": round(speed["ours"], 1),
        "peer_tok_s": round(speed["peer"], 1),
        "ratio": round(ratio, 2),
        "same": same,
        "requests": len(options.requests),
        "dtype": options.dtype,
        "threads": options.threads,
        "ours_s": [round(taken, 2) for taken in seconds["ours"]],
        "peer_s": [round(taken, 2) for taken in seconds["peer"]],
    }
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(
        f"ours {figures['ours_tok_s']} tok/s, transformers {figures['peer_tok_s']} tok/s, "
        f"ratio {figures['ratio']}, same {same} of {figures['requests']}"
    )
    wrong = options.dtype == "float32" and same < len(options.requests)
    return int(wrong or ratio < options.accept)


if __name__ == "__main__":
    raise SystemExit(main())
