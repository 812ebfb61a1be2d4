"""`headway calibrate`: fit a latency model to measured steps."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from framework.cli.options import (
    Limits,
    Loading,
    common_options,
    gather,
    limit_options,
    loading_options,
    writable,
)
from framework.cli.report import headline, show_table, study_progress, write_json
from framework.engine.models import limits_for, load_model, resolve_model
from framework.latency import TableLatency
from framework.study.calibrating import measure_runner
from framework.study.fitting import fit_latency, read_rows, write_rows

if TYPE_CHECKING:
    from framework.study.fitting import Fit, Row

POOR = 0.3
"""Mean relative error of the fitted steps beyond which a model predicts nothing."""


@click.command(
    "calibrate", epilog="Example: headway calibrate --model smollm2 --out smollm2-here.json"
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    callback=writable,
    required=True,
    metavar="FILE",
    help="Where the latency model goes; give it to --latency.",
)
@click.option(
    "--rows",
    "rows_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fit to these measured steps (CSV) and run nothing.",
)
@click.option(
    "--save-rows",
    type=click.Path(path_type=Path),
    callback=writable,
    metavar="FILE",
    help="Also write the measured steps as CSV.",
)
@click.option("--curve", is_flag=True, help="Fit a curve over the tokens of a step, not a line.")
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=90.0,
    show_default=True,
    help="How long to measure.",
)
@loading_options
@limit_options
@common_options
def command(
    *,
    out: Path,
    rows_path: Path | None,
    save_rows: Path | None,
    curve: bool,
    seconds: float,
    json_path: Path | None,
    **options: Any,
) -> int:
    """Fit a latency model to measured steps, for studies in virtual time.

    A runner serves batches of many sizes, contexts and chunks, up to the limits given, and each
    step is timed whole, scheduler included. Let nothing else run meanwhile. Or --rows brings the
    steps: a CSV with the columns num_tokens, num_prefill_tokens, prefill_query_context,
    decode_context, num_decodes, num_requests, seconds.
    """
    limits, loading = gather(Limits, options), gather(Loading, options)
    if rows_path is not None:
        rows = read_rows(rows_path)
        about: dict[str, Any] = {"name": rows_path.stem}
        measured = str(rows_path)
    else:
        rows, about = _measure(loading, limits, seconds)
        measured = f"this {loading.runner} runner"
    if save_rows is not None:
        write_rows(rows, save_rows)
    fit = fit_latency(rows, has_curve=curve, **about)
    source = (
        f"headway calibrate: {fit.num_rows} steps of {measured}, mean error {100 * fit.mape:.1f} %"
    )
    fit = attrs.evolve(fit, latency=attrs.evolve(fit.latency, source=source))
    write_json(out, fit.latency.as_dict())
    _show(fit)
    line = f"{out}: {fit.num_rows} steps, {_sum_up(fit)}"
    is_poor = fit.mape > POOR
    if is_poor:
        line += "; too far off to predict anything: measure again, with nothing else on the machine"
    write_json(json_path, {"headline": line, **fit.as_dict()})
    headline(line)
    return int(is_poor)


def _measure(loading: Loading, limits: Limits, seconds: float) -> tuple[list[Row], dict[str, Any]]:
    directory = resolve_model(loading.model)
    config = limits_for(directory, {**attrs.asdict(limits), "num_spec_tokens": 0})
    model = load_model(
        directory,
        config,
        runner=loading.runner,
        dtype=loading.dtype,
        device=loading.device,
        num_threads=loading.threads,
    )
    with closing(model.runner), study_progress("phases") as tell:
        fitting = None if limits.num_blocks is not None else model.num_blocks_that_fit()
        if fitting is not None:
            model = model.under(attrs.evolve(config, num_blocks=fitting))
        rows = measure_runner(model, seconds=seconds, on_phase=lambda _, total: tell(1, total))
    device = getattr(model.runner, "device", None) or "this machine"
    return rows, {
        "name": f"{loading.model} {model.dtype or ''} on {device}, {loading.runner} runner",
        "num_kv_tokens": (model.config.num_blocks - 1) * model.config.block_size,
    }


def _show(fit: Fit) -> None:
    latency = fit.latency
    lines = [[name, f"{getattr(latency, name):.4g}"] for name in latency.terms if name != "curve"]
    if isinstance(latency, TableLatency):
        lines += [[f"curve at {count} tokens", f"{time:.4g}"] for count, time in latency.curve]
    show_table(latency.name, ["term", "ms"], lines, numbers=True)


def _sum_up(fit: Fit) -> str:
    worst = fit.worst
    return (
        f"mean error {100 * fit.mape:.1f} %, all together {100 * (fit.bias - 1):+.1f} %; worst: "
        f"{1000 * fit.worst_s:.1f} ms for {1000 * worst.seconds:.1f} ms measured, with "
        f"{worst.batch.num_tokens} tokens of {worst.batch.num_requests} requests"
    )
