"""Kernels are compiled for GPUs that are not there, and what is wrong with one is named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

pytest.importorskip("triton", reason="the kernels need triton")

from runners.triton.aot.compiling import Compilers, Outcome
from runners.triton.aot.figures import Figures, read_gcn
from runners.triton.aot.report import judge, write_report
from runners.triton.aot.specs import Spec, list_specs
from runners.triton.configs import TUNED_ARCHS, AttentionConfig, Situation, table, write_table

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
TRITON = ROOT / "runners" / "triton"
DECODE = Situation("sm_80", 64, 1, "float16", "decode")
PREFILL = Situation("sm_80", 128, 1, "float16", "prefill")
NO_INSTRUCTIONS = dict.fromkeys(("wgmma", "mma", "mfma", "loads_128", "loads_16", "cp_async"), 0)
PLAIN = NO_INSTRUCTIONS | {"loads_128": 8}
NARROW = NO_INSTRUCTIONS | {"loads_16": 64}
GOOD = Figures(200, 2**16, 0, PLAIN | {"wgmma": 8})


def compile_rows(
    rows: Mapping[Situation, AttentionConfig], directory: Path
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The command, in an environment that would have it interpret; its report by kernel."""
    given, out = directory / "table.json", directory / "aot.json"
    write_table(given, rows)
    options = ["--table", str(given), "--out", str(out), "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "runners.triton.aot", *options],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.exists(), done.stderr
    return done, {row["kernel"]: row for row in json.loads(out.read_text())["rows"]}


def test_rows_are_compiled_and_the_bad_one_is_named(tmp_path: Path) -> None:
    rows = {DECODE: table()[DECODE], PREFILL: AttentionConfig(128, 128, 4, 4)}
    done, found = compile_rows(rows, tmp_path)
    *complaints, last = done.stdout.splitlines()
    named = "paged_attention_kernel on sm_80 (head_dim 128, group 1, float16)"
    assert [complaint.startswith(named) for complaint in complaints] == [True, True]
    assert complaints[0].endswith("bytes of shared memory; sm_80 has 166912")
    assert complaints[1].endswith("bytes a thread")
    assert last == "3 kernels, 1 spills, 1 over"
    assert done.returncode == 1
    assert list(found) == ["merge_splits_kernel", "paged_attention_kernel", "split_decode_kernel"]
    assert found["paged_attention_kernel"]["spill_bytes"] > 0
    assert found["split_decode_kernel"]["spill_bytes"] == 0
    assert found["split_decode_kernel"]["instructions"]["loads_128"] > 8


def test_good_rows_pass(tmp_path: Path) -> None:
    done, _ = compile_rows({DECODE: table()[DECODE]}, tmp_path)
    assert done.stdout.splitlines() == ["2 kernels, 0 spills, 0 over"]
    assert done.returncode == 0


def test_a_compiler_that_ends_its_process_is_named_and_the_rest_compiled() -> None:
    dying = Spec("dying", "sm_80", "", partial(os._exit, 3))
    good = next(spec for spec in list_specs({}, whole=True) if spec.kernel == "store_kv")
    with Compilers(1) as compilers:
        first, second = compilers.compile([dying, good])
        again = compilers.compile([good, good])
    assert first == (dying, Outcome({}, "the compiler ended its process"))
    assert list(second[1].kernels) == ["store_kv_kernel"]
    assert again == [second, second]
    assert judge([first]).complaints == ["dying on sm_80: the compiler ended its process"]


def spec(arch: str, dtype: str = "bfloat16", block_m: int = 64) -> Spec:
    return Spec("paged_attention", arch, dtype, int, AttentionConfig(block_m, 64, 4, 2), dtype)


@pytest.mark.parametrize(
    ("judged", "figures", "complaint"),
    [
        (spec("sm_90"), GOOD, ""),
        (spec("gfx942"), attrs.evolve(GOOD, shared_bytes=2**16 + 1), "needs 65537 bytes of shared"),
        (spec("sm_90"), attrs.evolve(GOOD, spill_bytes=4), "spills 4 bytes a thread"),
        (spec("sm_90"), attrs.evolve(GOOD, instructions=PLAIN), "tiles without wgmma"),
        (spec("sm_90", block_m=16), attrs.evolve(GOOD, instructions=PLAIN), ""),
        (spec("sm_90", "float32"), attrs.evolve(GOOD, instructions=PLAIN), ""),
        (spec("sm_80"), attrs.evolve(GOOD, instructions=NARROW), "with less than 128 bits"),
    ],
)
def test_a_kernel_is_judged_by_its_figures(judged: Spec, figures: Figures, complaint: str) -> None:
    verdict = judge([(judged, Outcome({"paged_attention_kernel": figures}))])
    assert len(verdict.complaints) == bool(complaint)
    assert complaint in "".join(verdict.complaints)
    assert len(verdict.rows) == 1


def test_complaints_of_other_kinds_are_counted_in_the_closing_line() -> None:
    verdict = judge([(spec("sm_90"), Outcome({}, "ValueError: no"))])
    assert verdict.complaints == ["paged_attention on sm_90 (bfloat16): ValueError: no"]
    assert verdict.summary() == "0 kernels, 0 spills, 0 over, 1 other complaints"


def test_reports_differ_by_their_seconds_alone(tmp_path: Path) -> None:
    outcomes = [
        (spec(arch), Outcome({"paged_attention_kernel": GOOD})) for arch in ("sm_90", "sm_80")
    ]
    texts = []
    for seconds, found in ((1.2, outcomes), (3.4, outcomes[::-1])):
        write_report(tmp_path / "new" / "aot.json", judge(found), "3.6.0", seconds)
        texts.append((tmp_path / "new" / "aot.json").read_text().splitlines())
    assert [one for one, other in zip(*texts, strict=True) if one != other] == ['"seconds": 1,']
    assert [row["arch"] for row in json.loads("\n".join(texts[0]))["rows"]] == ["sm_80", "sm_90"]


@pytest.mark.parametrize(("spills", "scratch", "expected"), [(0, 0, 0), (3, 0, 12), (3, 48, 48)])
def test_amd_spills_are_those_of_vector_registers(spills: int, scratch: int, expected: int) -> None:
    text = (
        f"    .private_segment_fixed_size: {scratch}\n    .sgpr_spill_count: 9\n"
        f"    .vgpr_count:     176\n    .vgpr_spill_count: {spills}\n"
    )
    assert read_gcn(text) == (176, expected)


def test_every_kernel_and_every_row_is_compiled_for_every_architecture() -> None:
    specs = list_specs(table(), whole=True)
    configs = [spec.config for spec in specs]
    assert all(config in configs for config in table().values())
    compiled = {spec.kernel for spec in specs} | {"merge_splits"}
    for path in (TRITON / "kernels").glob("*.py"):
        launchers = set(re.findall(r"^def ([a-z]\w*)\(", path.read_text(), re.MULTILINE))
        if re.search(r"^def \w+_kernel\(", path.read_text(), re.MULTILINE):
            assert launchers & compiled, f"{path.name} has no launcher in runners/triton/aot"
    for kernel in compiled - {"merge_splits"}:
        assert {spec.arch for spec in specs if spec.kernel == kernel} >= set(TUNED_ARCHS)
