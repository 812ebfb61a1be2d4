"""The runner against transformers' own continuous batching: same weights, prompts and lengths.

Both are warmed up by other prompts of the same lengths, then timed from the first request handed
in to the last token. Greedy, without an end of sequence. In bfloat16 rounding differs, and with
random weights the likeliest tokens are close together: equal outputs are counted, not asked for.
"""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import attrs
from attrs import frozen

from benchmarks.gpu_check.models import build
from benchmarks.gpu_check.part import Check, Figures, Item
from benchmarks.gpu_check.serving import BUDGET, Server, config_for, prompts_of
from runners.triton import TritonRunner
from runners.triton.loading import accept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.gpu_check.place import Place

PAGE_SIZE = 32


@frozen
class Work:
    """What both are given.

    Attributes:
        size: of the model.
        lengths: of the prompts.
        max_tokens: of each output.
    """

    size: str
    lengths: tuple[int, ...]
    max_tokens: int

    @property
    def num_tokens(self) -> int:
        """Of all outputs."""
        return len(self.lengths) * self.max_tokens


def work_of(place: Place) -> Work:
    """128 requests of 64 to 512 tokens, and 128 tokens of output each."""
    if place.is_toy:
        return Work("toy", (5, 9, 12), 4)
    draw = random.Random(11)
    return Work("1B", tuple(draw.randint(64, 512) for _ in range(128)), 128)


def items(check: Check) -> Iterator[Item]:
    """Ours, then transformers' with the sizes it chooses itself, then with sizes we choose."""
    work = work_of(check.place)
    yield Item("ours", partial(ours, check, work), 10)
    if not check.place.is_toy:  # on a CPU it would choose all of the memory
        yield Item("transformers", partial(theirs, check, work, {}), 15)
    yield Item("transformers, our sizes", partial(theirs, check, work, sizes(work)), 15)


def conclude(found: dict[str, Figures]) -> Figures:
    """The ratio to the better of theirs, and how many outputs were equal."""
    mine = found.get("ours", {})
    others = [figures for name, figures in found.items() if name != "ours"]
    best = max(others, key=lambda figures: figures.get("tokens_s", 0.0), default={})
    if "tokens_s" not in mine or "tokens_s" not in best:
        return {"ratio": None}
    pairs = zip(mine["digests"], best["digests"], strict=True)
    return {
        "ratio": round(mine["tokens_s"] / best["tokens_s"], 4),
        "equal": sum(left == right for left, right in pairs),
        "requests": len(mine["digests"]),
    }


def ours(check: Check, work: Work) -> Figures:
    """Scheduler, EngineCore in async mode, TritonRunner."""
    check.place.empty()
    model = accept(build(check.place, work.size))
    config = config_for(work.lengths, work.max_tokens)
    server = Server(TritonRunner(model, attrs.evolve(config, num_blocks=2 * config.num_blocks)))
    warm, prompts = (prompts_of(model.config.vocab_size, work.lengths, seed) for seed in (1, 2))
    server.serve(warm, work.max_tokens)
    begun = time.perf_counter()
    outputs = server.serve(prompts, work.max_tokens)
    seconds = time.perf_counter() - begun
    server.close()
    return _figures(work, seconds, outputs)


def theirs(check: Check, work: Work, chosen: dict[str, int]) -> Figures:
    """transformers' continuous batching in one session."""
    from transformers import GenerationConfig  # noqa: PLC0415
    from transformers.generation import ContinuousBatchingConfig  # noqa: PLC0415

    check.place.empty()
    model: Any = build(check.place, work.size, "sdpa")
    known = ContinuousBatchingConfig.__dataclass_fields__
    if "page_size" not in known and "page_size" in chosen:  # the older name
        chosen = {**chosen, "block_size": chosen["page_size"]}
    fitting = {name: value for name, value in chosen.items() if name in known}
    warm, prompts = (prompts_of(model.config.vocab_size, work.lengths, seed) for seed in (1, 2))
    with model.continuous_batching_context_manager(
        generation_config=GenerationConfig(
            do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=work.max_tokens
        ),
        continuous_batching_config=ContinuousBatchingConfig(**fitting),
        timeout=5,
        **_hints(work),
    ) as manager:
        _served(check, manager, warm, work.max_tokens)
        begun = time.perf_counter()
        outputs = _served(check, manager, prompts, work.max_tokens)
        seconds = time.perf_counter() - begun
        attention = model.config._attn_implementation
    return {**_figures(work, seconds, outputs), "attention": attention, "chosen": fitting}


def sizes(work: Work) -> dict[str, int]:
    """The limits that ours has."""
    longest = max(work.lengths) + work.max_tokens + 1
    return {
        "page_size": PAGE_SIZE,
        "num_blocks": 2 * len(work.lengths) * (longest // PAGE_SIZE + 1),
        "max_batch_tokens": BUDGET,
        "max_requests_per_batch": len(work.lengths),
    }


def _hints(work: Work) -> dict[str, Any]:
    """What `generate_batch` would tell it; not every version takes hints."""
    try:
        from transformers.generation.continuous_batching.utils import (  # noqa: PLC0415
            WorkloadHints,
        )
    except ImportError:
        return {}
    hints = WorkloadHints(
        max_prompt_length=max(work.lengths),
        max_generated_length=work.max_tokens,
        num_requests=len(work.lengths),
    )
    return {"workload_hints": hints}


def _served(
    check: Check, manager: Any, prompts: Sequence[list[int]], max_tokens: int
) -> list[list[int]]:
    """Outputs of all prompts.

    Raises:
        RuntimeError: it ended before its requests did, one failed, or the time is over.
    """
    names = [manager.add_request(prompt, max_new_tokens=max_tokens) for prompt in prompts]
    tokens: dict[str, list[int]] = {}
    while len(tokens) < len(names):
        result = manager.get_result(timeout=1)
        if check.left < 0 or (result is None and not manager.is_running()):
            raise RuntimeError(f"{len(tokens)} of {len(names)} requests have ended")
        if result is not None and result.error:
            raise RuntimeError(f"request {result.request_id!r} failed: {result.error}")
        if result is not None and result.is_finished():
            tokens[result.request_id] = list(result.generated_tokens)
    return [tokens[name] for name in names]


def _figures(work: Work, seconds: float, outputs: list[list[int]]) -> Figures:
    assert all(len(tokens) == work.max_tokens for tokens in outputs), "an output is too short"
    return {
        "tokens_s": round(work.num_tokens / seconds, 2),
        "seconds": round(seconds, 4),
        "digests": [crc32(str(tokens).encode()) for tokens in outputs],
    }
