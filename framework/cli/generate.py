"""`headway generate`: answer prompts offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from framework.cli.app import INTERRUPTED
from framework.cli.options import (
    Limits,
    Loading,
    Sampling,
    common_options,
    gather,
    limit_options,
    loading_options,
    sampling_options,
    settings_for,
)
from framework.cli.report import headline, progress, rate, share, write_json
from framework.engine.llm import LLM
from framework.engine.promptfile import make_sampling_params, read_prompts
from framework.engine.prompts import Prompt
from framework.errors import RequestError
from framework.metrics import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framework.engine.completion import Completion, LiveRequest
    from framework.sampling import SamplingParams


@click.command(
    "generate",
    epilog="Example: headway generate --model smollm2 --plugin priority 'Why is the sky blue?'",
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option(
    "--prompts",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSONL of prompts, or `demo`; see below.",
)
@click.option("--raw", is_flag=True, help="Continue each TEXT as it stands, without chat template.")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="SPEC",
    help="name, name(option=value), module:attribute or file.py:Name; the last is asked first.",
)
@loading_options
@limit_options
@sampling_options
@common_options
def command(
    texts: tuple[str, ...],
    file: Path | None,
    raw: bool,
    plugins: tuple[str, ...],
    json_path: Path | None,
    **options: Any,
) -> int:
    """Answer each TEXT, and every line of a file of prompts.

    A line is a JSON object with `prompt`, `messages` or `prompt_token_ids`, and optional `id`,
    `priority`, `tenant`, `max_tokens` and other sampling fields, which override the options.
    All prompts arrive at once. KV blocks, chunked prefill and first come, first served are put
    beneath the plugins where none of them does that work.
    """
    sampling = attrs.asdict(gather(Sampling, options))
    limits, loading = gather(Limits, options), gather(Loading, options)
    params = make_sampling_params(sampling)
    prompts = read_prompts(file, sampling) if file is not None else []
    if not (texts or prompts):
        raise click.UsageError("no prompt: give a TEXT or --prompts FILE")
    with LLM.from_settings(settings_for(loading, plugins, limits)) as llm:
        tokenizer = llm.model.tokenizer
        as_chat = not raw and tokenizer is not None and tokenizer.has_chat_template
        prompts += [_from_text(text, params, as_chat=as_chat) for text in texts]
        lives = [llm.front.submit(prompt) for prompt in prompts]
        finished = _run(llm, lives)
    completions = [live.completion for live in lives if live.completion is not None]
    return _report(llm, completions, finished=finished, json_path=json_path)


def _from_text(text: str, params: SamplingParams, *, as_chat: bool) -> Prompt:
    where = f"prompt {text[:40]!r}"
    if not text:
        raise RequestError(f"{where}: the prompt is empty; allowed: at least one token")
    if not as_chat:
        return Prompt(prompt=text, sampling_params=params, where=where)
    messages = ({"role": "user", "content": text},)
    return Prompt(messages=messages, sampling_params=params, where=where)


def _run(llm: LLM, lives: Sequence[LiveRequest]) -> bool:
    """Run all; False if interrupted. A lone answer is shown while it grows."""
    try:
        if len(lives) == 1:
            for piece in llm.front.stream(lives[0]):
                click.echo(piece, nl=False)
            click.echo()
            return True
        with progress("requests", len(lives)) as advance:
            while llm.front.has_live:
                advance(len(llm.front.step()))
    except KeyboardInterrupt:
        click.echo()
        return False
    for live in lives:
        if live.completion is not None:
            click.echo(f"--- {live.request.request_id} ({live.completion.finish_reason})")
            click.echo(live.completion.text)
    return True


def _report(
    llm: LLM, completions: Sequence[Completion], *, finished: bool, json_path: Path | None
) -> int:
    summary = summarise([completion.timings for completion in completions])
    failed = [completion for completion in completions if completion.error is not None]
    counters = llm.front.core.scheduler.counters
    line = (
        f"{'' if finished else 'interrupted: '}{len(completions)} requests, "
        f"{summary.num_output_tokens} tokens in {summary.duration_s:.2f} s "
        f"({rate(summary.output_tokens_per_s)} tok/s), {summary.num_preemptions} preemptions, "
        f"prefix hits {share(summary.num_cached_tokens, summary.num_prompt_tokens)}, "
        f"drafts accepted {share(counters.num_drafts_accepted, counters.num_drafts)}"
        f"{f', {len(failed)} failed: {failed[0].error}' if failed else ''}"
    )
    data = {
        "headline": line,
        "finished": finished,
        "model": str(llm.model.directory),
        "config": attrs.asdict(llm.model.config),
        "plugins": [name for name, _ in llm.front.core.scheduler.plugins],
        "summary": summary.as_dict(),
        "requests": [completion.as_dict() for completion in completions],
    }
    write_json(json_path, data)
    headline(line)
    if not finished:
        return INTERRUPTED
    return 1 if failed else 0
