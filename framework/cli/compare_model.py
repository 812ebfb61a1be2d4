"""The same prompts under several policies on a real model, one policy after another."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import attrs
from attrs import evolve, frozen

from framework.cli.app import INTERRUPTED
from framework.cli.report import headline, progress, write_json
from framework.cli.tables import show_latencies, show_priorities, sum_up
from framework.engine.front import Front
from framework.engine.models import limits_for, load_model, resolve_model
from framework.engine.playback import Outcome, Playback, check_prompts, same_outputs, warm_up
from framework.engine.promptfile import make_sampling_params, read_prompts
from framework.engine.settings import DEFAULT_NUM_DRAFTS, proposes_drafts
from framework.stack import build_manager, complete_stack, parse_stack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from framework.cli.options import Limits, Loading, Sampling
    from framework.config import SchedulerConfig
    from framework.engine.models import LoadedModel
    from framework.engine.prompts import Prompt
    from framework.loading import Spec

log = logging.getLogger("headway.compare")


def compare_on_model(
    policies: Sequence[str],
    file: Path,
    json_path: Path | None,
    *,
    limits: Limits,
    loading: Loading,
    sampling: Sampling,
) -> int:
    """Serve a file of prompts under each policy; returns the exit status."""
    fields = attrs.asdict(sampling)
    make_sampling_params(fields)
    prompts = read_prompts(file, fields)
    runs, model = _prepare(policies, loading, limits, prompts)
    outcomes: list[Outcome] = []
    try:
        stopped_by = _play(runs, model, prompts, outcomes)
    finally:
        model.runner.close()
    data = _report(outcomes, model, prompts, None if stopped_by is None else len(runs))
    write_json(json_path, data)
    headline(data["headline"])
    if isinstance(stopped_by, KeyboardInterrupt):
        return INTERRUPTED
    if stopped_by is not None:
        raise stopped_by
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
        fitting = None if limits.num_blocks is not None else model.num_blocks_that_fit()
        if fitting is not None:
            runs = [evolve(run, config=evolve(run.config, num_blocks=fitting)) for run in runs]
        for run in runs:
            check_prompts(evolve(model, config=run.config), run.stack, prompts)
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
        warm_up(model.under(runs[0].config), runs[0].stack, prompts[0])
        for run in runs:
            log.info("policy %s: stack %s", run.policy, "+".join(map(str, run.stack)))
            with Front(model.under(run.config), run.stack) as front:
                playback = Playback(run.policy, front, prompts)
                try:
                    with progress(run.policy, len(prompts)) as advance:
                        playback.run(advance)
                finally:
                    outcomes.append(playback.outcome())
                front.drain()
    except (KeyboardInterrupt, Exception) as stopped_by:  # raised again once the table is shown
        return stopped_by
    return None


def _report(
    outcomes: Sequence[Outcome],
    model: LoadedModel,
    prompts: Sequence[Prompt],
    num_stopped: int | None,
) -> dict[str, Any]:
    """Show the tables; returns what goes into the JSON file."""
    is_exact = model.dtype == "float32" and all(
        prompt.sampling_params.temperature == 0 for prompt in prompts
    )
    same = same_outputs(outcomes) if is_exact else None
    if outcomes:
        show_latencies(outcomes)
    if outcomes and len({prompt.priority for prompt in prompts}) > 1:
        show_priorities(outcomes)
    return {
        "headline": sum_up(outcomes, same, num_stopped),
        "finished": num_stopped is None,
        "outputs_identical": same,
        "model": str(model.directory),
        "dtype": model.dtype,
        "config": attrs.asdict(model.config),
        "policies": [outcome.as_dict() for outcome in outcomes],
    }
