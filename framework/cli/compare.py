"""`headway compare`: the same prompts under several policies, one after another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from framework.cli.options import (
    Limits,
    Loading,
    Sampling,
    common_options,
    gather,
    limit_options,
    loading_options,
    sampling_options,
)
from framework.cli.report import headline, progress, rate, seconds, share, show_table, write_json
from framework.engine.llm import num_drafts_for
from framework.engine.models import limits_for, load_model, resolve_model
from framework.engine.playback import Outcome, Playback, check_prompts, same_outputs, warm_up
from framework.engine.promptfile import make_sampling_params, read_prompts
from framework.stack import build_manager, complete_stack, parse_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.config import SchedulerConfig
    from framework.engine.models import LoadedModel
    from framework.engine.prompts import Prompt
    from framework.metrics import Distribution

INTERRUPTED = 130


@click.command(
    "compare",
    epilog="Example: headway compare fcfs 'priority(displace=True)' fcfs+spec_decode "
    "--prompts demo --num-blocks 160",
)
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option(
    "--prompts",
    "file",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="JSONL of prompts, or `demo` for the ones that come with Headway.",
)
@loading_options
@limit_options
@sampling_options
@common_options
def command(policies: tuple[str, ...], file: Path, json_path: Path | None, **options: Any) -> int:
    """Serve the prompts under each POLICY and show how they differ.

    A POLICY is a plugin or several: name, name(option=value), module:attribute, file.py:Name,
    one+another. The model is loaded once; each policy starts with an empty cache and sees every
    prompt arrive in real time, `arrival_s` seconds after its start. Latencies count from arrival.
    Ctrl-C ends the run and shows what is done.
    """
    sampling = attrs.asdict(gather(Sampling, options))
    make_sampling_params(sampling)
    prompts = read_prompts(file, sampling)
    limits, loading = gather(Limits, options), gather(Loading, options)
    runs, model = _prepare(policies, loading, limits, prompts)
    outcomes: list[Outcome] = []
    try:
        finished = _play(runs, model, prompts, outcomes)
    finally:
        model.runner.close()
    return _report(outcomes, loading, model, prompts, finished=finished, json_path=json_path)


Runs = dict[str, tuple[list[Any], "SchedulerConfig"]]
"""{policy: its parts, and the limits it runs under}."""


def _prepare(
    policies: Sequence[str], loading: Loading, limits: Limits, prompts: Sequence[Prompt]
) -> tuple[Runs, LoadedModel]:
    """Check everything that can be wrong before the first policy runs."""
    stacks = {policy: complete_stack(parse_stack(policy)) for policy in policies}
    for stack in stacks.values():
        build_manager(stack)
    directory = resolve_model(loading.model)
    runs: Runs = {}
    for policy, stack in stacks.items():
        num_drafts = num_drafts_for(stack, limits.num_spec_tokens)
        fields = {**attrs.asdict(limits), "num_spec_tokens": num_drafts}
        runs[policy] = (stack, limits_for(directory, fields))
    most = max((config for _, config in runs.values()), key=lambda c: c.num_spec_tokens)
    model = load_model(
        directory,
        most,
        runner=loading.runner,
        dtype=loading.dtype,
        device=loading.device,
        num_threads=loading.threads,
    )
    try:
        for stack, config in runs.values():
            check_prompts(model, stack, config, prompts)
    except BaseException:
        model.runner.close()
        raise
    return runs, model


def _play(
    runs: Runs, model: LoadedModel, prompts: Sequence[Prompt], outcomes: list[Outcome]
) -> bool:
    """Run every policy, adding to the outcomes; False if interrupted."""
    try:
        warm_up(model, next(iter(runs.values()))[0], prompts[0])
        for policy, (stack, config) in runs.items():
            playback = Playback.of(policy, model, stack, config, prompts)
            try:
                with progress(policy, len(prompts)) as advance:
                    playback.run(advance)
            finally:
                outcomes.append(playback.outcome())
                playback.front.close()
            playback.front.drain()
    except KeyboardInterrupt:
        return False
    return True


def _report(
    outcomes: Sequence[Outcome],
    loading: Loading,
    model: LoadedModel,
    prompts: Sequence[Prompt],
    *,
    finished: bool,
    json_path: Path | None,
) -> int:
    is_exact = loading.dtype == "float32" and all(
        prompt.sampling_params.temperature == 0 for prompt in prompts
    )
    same = same_outputs(outcomes) if is_exact else None
    if outcomes:
        _show_latencies(outcomes)
    if outcomes and len({prompt.priority for prompt in prompts}) > 1:
        _show_priorities(outcomes)
    line = _headline(outcomes, same, finished=finished)
    data = {
        "headline": line,
        "interrupted": not finished,
        "outputs_identical": same,
        "model": str(model.directory),
        "dtype": loading.dtype,
        "config": attrs.asdict(model.config),
        "policies": [outcome.as_dict() for outcome in outcomes],
    }
    write_json(json_path, data)
    headline(line)
    if not finished:
        return INTERRUPTED
    failed = any(completion.error for outcome in outcomes for completion in outcome.completions)
    return 1 if failed else 0


def _show_latencies(outcomes: Sequence[Outcome]) -> None:
    names = ("done", "TTFT", "TPOT", "E2E", "tok/s", "preempted", "prefix hits", "drafts ok")
    rows = []
    for outcome in outcomes:
        summary = outcome.summary
        rows.append(
            (
                outcome.policy,
                f"{len(outcome.completions)}/{outcome.num_prompts}",
                _pair(summary.ttft_s),
                _pair(summary.tpot_s),
                _pair(summary.e2e_s),
                rate(summary.output_tokens_per_s),
                str(outcome.num_preemptions),
                share(summary.num_cached_tokens, summary.num_prompt_tokens),
                share(outcome.num_drafts_accepted, outcome.num_drafts),
            )
        )
    show_table("latency from arrival, p50 / p90", ("policy", *names), rows, numbers=True)


def _show_priorities(outcomes: Sequence[Outcome]) -> None:
    waits = {outcome.policy: outcome.ttft_by_priority() for outcome in outcomes}
    priorities = sorted({priority for each in waits.values() for priority in each})
    columns = ["policy"]
    for priority in priorities:
        counts = [each[priority].count for each in waits.values() if priority in each]
        columns.append(f"priority {priority} (n={max(counts)})")
    rows = [
        [policy, *(_pair(each[priority]) if priority in each else "-" for priority in priorities)]
        for policy, each in waits.items()
    ]
    title = "TTFT by priority (lower is more urgent), p50 / p90"
    show_table(title, columns, rows, numbers=True)


def _pair(distribution: Distribution) -> str:
    if not distribution.count:
        return "-"
    return f"{seconds(distribution.p50)} / {seconds(distribution.p90)}"


def _headline(outcomes: Sequence[Outcome], same: bool | None, *, finished: bool) -> str:
    complete = [outcome for outcome in outcomes if outcome.is_complete]
    parts = []
    if not finished:
        parts.append(f"interrupted with {len(complete)} policies complete")
    if complete:
        best = min(complete, key=lambda outcome: outcome.summary.ttft_s.p50 or 0.0)
        most = max(complete, key=lambda outcome: outcome.summary.output_tokens_per_s or 0.0)
        parts.append(f"lowest median TTFT: {best.policy} ({seconds(best.summary.ttft_s.p50)})")
        tokens = rate(most.summary.output_tokens_per_s)
        parts.append(f"highest throughput: {most.policy} ({tokens} tok/s)")
    if same is not None:
        parts.append(f"outputs identical under all policies: {'yes' if same else 'no'}")
    return "; ".join(parts) or "nothing was run"
