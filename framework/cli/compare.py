"""`headway compare`: the same prompts under several policies, one after another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from attrs import frozen

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
from framework.cli.report import headline, progress, rate, share, show_table, write_json
from framework.engine.front import Front
from framework.engine.llm import DEFAULT_NUM_DRAFTS, proposes_drafts
from framework.engine.models import limits_for, load_model, resolve_model
from framework.engine.playback import Outcome, Playback, check_prompts, same_outputs, warm_up
from framework.engine.promptfile import make_sampling_params, read_prompts
from framework.errors import HeadwayError
from framework.stack import build_manager, complete_stack, parse_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.config import SchedulerConfig
    from framework.engine.models import LoadedModel
    from framework.engine.prompts import Prompt
    from framework.loading import Spec
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
        stopped_by = _play(runs, model, prompts, outcomes)
    finally:
        model.runner.close()
    _report(outcomes, loading, model, prompts, finished=stopped_by is None, json_path=json_path)
    if isinstance(stopped_by, HeadwayError):
        raise stopped_by
    if stopped_by is not None:
        return INTERRUPTED
    return int(any(each.error for outcome in outcomes for each in outcome.completions))


@frozen
class Run:
    """One policy: what the user calls it, its whole stack, and the limits it runs under."""

    policy: str
    stack: Sequence[Spec]
    config: SchedulerConfig


def _prepare(
    policies: Sequence[str], loading: Loading, limits: Limits, prompts: Sequence[Prompt]
) -> tuple[list[Run], LoadedModel]:
    """Check everything that can be wrong before the first policy runs."""
    stacks = [complete_stack(parse_stack(policy)) for policy in policies]
    for stack in stacks:
        build_manager(stack)
    directory = resolve_model(loading.model)
    runs = [
        Run(policy, stack, limits_for(directory, _fields(limits, stack)))
        for policy, stack in zip(policies, stacks, strict=True)
    ]
    model = load_model(
        directory,
        max((run.config for run in runs), key=lambda config: config.num_spec_tokens),
        runner=loading.runner,
        dtype=loading.dtype,
        device=loading.device,
        num_threads=loading.threads,
    )
    try:
        for run in runs:
            check_prompts(model, run.stack, run.config, prompts)
    except BaseException:
        model.runner.close()
        raise
    return runs, model


def _fields(limits: Limits, stack: Sequence[Spec]) -> dict[str, Any]:
    """The limits for one stack: it reserves room for drafts only if it makes them."""
    asked = DEFAULT_NUM_DRAFTS if limits.num_spec_tokens is None else limits.num_spec_tokens
    return {**attrs.asdict(limits), "num_spec_tokens": asked if proposes_drafts(stack) else 0}


def _play(
    runs: Sequence[Run], model: LoadedModel, prompts: Sequence[Prompt], outcomes: list[Outcome]
) -> BaseException | None:
    """Run every policy, adding to the outcomes; what stopped it early is returned."""
    try:
        warm_up(model, runs[0].stack, prompts[0])
        for run in runs:
            with Front(model, run.stack, run.config) as front:
                playback = Playback(run.policy, front, prompts)
                try:
                    with progress(run.policy, len(prompts)) as advance:
                        playback.run(advance)
                finally:
                    outcomes.append(playback.outcome())
                front.drain()
    except (KeyboardInterrupt, HeadwayError) as stopped_by:
        return stopped_by
    return None


def _report(
    outcomes: Sequence[Outcome],
    loading: Loading,
    model: LoadedModel,
    prompts: Sequence[Prompt],
    *,
    finished: bool,
    json_path: Path | None,
) -> None:
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
        "finished": finished,
        "outputs_identical": same,
        "model": str(model.directory),
        "dtype": loading.dtype,
        "config": attrs.asdict(model.config),
        "policies": [outcome.as_dict() for outcome in outcomes],
    }
    write_json(json_path, data)
    headline(line)


def _show_latencies(outcomes: Sequence[Outcome]) -> None:
    names = ("done", "TTFT s", "TPOT ms", "E2E s", "tok/s", "preempted", "hits", "drafts")
    rows = []
    for outcome in outcomes:
        summary = outcome.summary
        rows.append(
            (
                outcome.policy,
                f"{len(outcome.completions)}/{outcome.num_prompts}",
                _pair(summary.ttft_s),
                _pair(summary.tpot_s, 1000, 0),
                _pair(summary.e2e_s),
                rate(summary.output_tokens_per_s),
                str(outcome.num_preemptions),
                share(summary.num_cached_tokens, summary.num_prompt_tokens),
                share(outcome.num_drafts_accepted, outcome.num_drafts),
            )
        )
    title = (
        "Latencies from arrival, p50 / p90; hits: prompt tokens found in the cache; "
        "drafts: share accepted"
    )
    show_table(title, ("policy", *names), rows, numbers=True)


def _show_priorities(outcomes: Sequence[Outcome]) -> None:
    waits = [outcome.ttft_by_priority() for outcome in outcomes]
    priorities = sorted({priority for each in waits for priority in each})
    columns = ["policy"]
    for priority in priorities:
        counts = [each[priority].count for each in waits if priority in each]
        columns.append(f"priority {priority} (n={max(counts)})")
    rows = [
        [
            outcome.policy,
            *(_pair(each[priority]) if priority in each else "-" for priority in priorities),
        ]
        for outcome, each in zip(outcomes, waits, strict=True)
    ]
    title = "TTFT in seconds by priority (lower is more urgent), p50 / p90"
    show_table(title, columns, rows, numbers=True)


def _pair(distribution: Distribution, scale: int = 1, digits: int = 2) -> str:
    if distribution.p50 is None or distribution.p90 is None:
        return "-"
    return f"{distribution.p50 * scale:.{digits}f} / {distribution.p90 * scale:.{digits}f}"


def _headline(outcomes: Sequence[Outcome], same: bool | None, *, finished: bool) -> str:
    complete = [outcome for outcome in outcomes if outcome.is_complete]
    parts = []
    if not finished:
        parts.append(f"stopped early, {len(complete)} policies complete")
    if complete:
        best = min(complete, key=lambda outcome: outcome.summary.ttft_s.p50 or 0.0)
        most = max(complete, key=lambda outcome: outcome.summary.output_tokens_per_s or 0.0)
        wait, tokens = best.summary.ttft_s.p50 or 0.0, rate(most.summary.output_tokens_per_s)
        parts.append(f"lowest median TTFT: {best.policy} ({wait:.2f} s)")
        parts.append(f"highest throughput: {most.policy} ({tokens} tok/s)")
    if same is not None:
        parts.append(f"outputs identical under all policies: {'yes' if same else 'no'}")
    return "; ".join(parts) or "nothing was run"
