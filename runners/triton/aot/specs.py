"""What is compiled: every row of the table, some rows with every feature, every other kernel.

Rows that an architecture or a size borrows are compiled for a few situations only.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs
from attrs import frozen

from runners.triton.aot import elementwise, sampling
from runners.triton.aot.attention import SMALL_CACHE, Features, launch_decode, launch_prefill
from runners.triton.configs import HEAD_DIMS, TUNED_ARCHS, AttentionConfig, Situation, lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

KERNELS = {
    "prefill": ("paged_attention", launch_prefill),
    "decode": ("split_decode", launch_decode),
}
FEATURED = Features(window=1024, softcap=30.0, has_sinks=True, num_blocks=SMALL_CACHE)


@frozen
class Spec:
    """One launch to compile.

    Attributes:
        kernel: the launcher's name.
        case: what tells this launch from others of the same kernel and architecture.
        config: of an attention kernel.
        dtype: of the cache.
    """

    kernel: str
    arch: str
    case: str
    launch: Callable[[], None]
    config: AttentionConfig | None = None
    dtype: str = "bfloat16"


def list_specs(rows: Mapping[Situation, AttentionConfig], *, whole: bool) -> list[Spec]:
    """The rows' launches; with `whole` also those that are not of a single row."""
    specs = [of_row(situation, config) for situation, config in sorted(rows.items())]
    for situation, config in sorted(rows.items()):
        if situation.dtype == "bfloat16":
            specs += variants(situation, config)
    if whole:
        specs += [*borrowed(rows), *without_rows()]
    return specs


def of_row(
    situation: Situation,
    config: AttentionConfig,
    features: Features | None = None,
    note: str = "",
    phase: str = "",
) -> Spec:
    """A launch of the attention kernel of the situation's phase, or of another one."""
    kernel, launch = KERNELS[phase or situation.phase]
    case = f"head_dim {situation.head_dim}, group {situation.group}, {situation.dtype}{note}"
    made = partial(launch, situation, config, features or Features())
    return Spec(kernel, situation.arch, case, made, config, situation.dtype)


def variants(situation: Situation, config: AttentionConfig) -> Iterator[Spec]:
    """With every feature; for decode also without a merge, and with several queries a request.

    The tile of a decode has room to spare, so there one group stands for all.
    """
    if situation.phase == "prefill" or situation.group == 4:
        yield of_row(situation, config, FEATURED, note=", window, softcap, sinks")
    if situation.phase == "decode" and situation.group == 4:
        yield of_row(situation, config, Features(num_splits=1), note=", one split")
        yield of_row(situation, config, note=", few queries", phase="prefill")


def borrowed(rows: Mapping[Situation, AttentionConfig]) -> Iterator[Spec]:
    """float32 and an odd size everywhere, and large rows on architectures without own ones."""
    for phase in KERNELS:
        for arch in TUNED_ARCHS:
            for head_dim in HEAD_DIMS:
                yield of_asked(Situation(arch, head_dim, 4, "float32", phase), rows)
            yield of_asked(Situation(arch, 80, 3, "float16", phase), rows)
        for arch in ("sm_89", "sm_100", "gfx950"):
            yield of_asked(Situation(arch, 128, 4, "bfloat16", phase), rows)
            yield of_asked(Situation(arch, 256, 8, "bfloat16", phase), rows)


def of_asked(situation: Situation, rows: Mapping[Situation, AttentionConfig]) -> Spec:
    """With the sizes that a runner would look up."""
    return of_row(situation, lookup(*attrs.astuple(situation), rows=rows))


def without_rows() -> Iterator[Spec]:
    """The kernels whose launchers choose for themselves."""
    for arch in TUNED_ARCHS:
        for kernel, case, launch in elementwise.LAUNCHES + sampling.LAUNCHES:
            yield Spec(kernel, arch, case, launch)
