"""Recorded workloads: every format, what is taken of it, and what a seed changes."""

from __future__ import annotations

import gzip
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from framework.errors import ConfigError
from framework.study.classes import Classes
from framework.study.formats import parse_columns, read_rows
from framework.study.run import simulate_policy
from framework.study.shaping import repeat, resample_gaps, scale_time
from framework.study.source import Source
from framework.study.traces import Reading, load_trace
from framework.study.workload import Arrival, Workload
from tests.study.traces import (
    AZURE_2023,
    AZURE_2024,
    BURSTGPT,
    BURSTGPT_2,
    PUBLIC,
    bailian,
    json_lines,
    mooncake,
)

if TYPE_CHECKING:
    from pathlib import Path


def load(tmp_path: Path, text: str, name: str = "trace.csv", **options: Any) -> Workload:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return load_trace(tmp_path / name, Reading(**options))


def lengths(workload: Workload) -> list[tuple[int, int]]:
    return [(each.prompt_len, each.output_len) for each in workload.arrivals]


def times(workload: Workload) -> list[float]:
    return [round(each.time, 6) for each in workload.arrivals]


def public(name: str) -> Path:
    if not (PUBLIC / name).is_file():
        pytest.skip(f"the public trace {name} is not at hand")
    return PUBLIC / name


def test_azure_2023(tmp_path: Path) -> None:
    workload = load(tmp_path, AZURE_2023)
    assert lengths(workload) == [(374, 44), (396, 109), (879, 55)]
    assert times(workload) == [0, pytest.approx(4.314579, abs=2e-6), pytest.approx(4.541877)]
    assert workload.source["format"] == "azure"


def test_azure_2024_with_a_time_zone(tmp_path: Path) -> None:
    workload = load(tmp_path, AZURE_2024)
    assert lengths(workload) == [(2162, 5), (2399, 6)]
    assert times(workload) == [0, 0.007405]


def test_burstgpt_leaves_out_and_counts_what_failed(tmp_path: Path) -> None:
    workload = load(tmp_path, BURSTGPT)
    assert lengths(workload) == [(472, 18), (417, 276)]
    assert times(workload) == [0, 113]
    assert workload.counts == {"rows without prompt or output": 1}
    assert workload.source["format"] == "burstgpt"


def test_burstgpt_with_sessions(tmp_path: Path) -> None:
    assert lengths(load(tmp_path, BURSTGPT_2)) == [(472, 18)]


def test_mooncake_blocks_are_pieces_and_the_last_is_partial(tmp_path: Path) -> None:
    text = json_lines(mooncake(0, 1000, 5, 7, 8), mooncake(2500, 1536, 5, 7, 9, 10))
    workload = load(tmp_path, text, "trace.jsonl")
    assert [each.prefix for each in workload.arrivals] == [
        ((7, 512), (8, 488)),
        ((7, 512), (9, 512), (10, 512)),
    ]
    assert times(workload) == [0, 2.5]
    assert simulate_policy(workload).meter.num_cached_tokens == 512


def test_bailian_chats_wait_for_the_turn_before(tmp_path: Path) -> None:
    rows = (bailian(9, -1, 3.0, 40, 5, 1, 2), bailian(4, 9, 10.0, 70, 5, 1, 2, 3, 4))
    workload = load(tmp_path, json_lines(*rows), "trace.jsonl")
    first, second = workload.arrivals
    assert first.prefix == ((1, 16), (2, 16))
    assert second.parent == first.request_id and second.time == 7
    meter = simulate_policy(workload).meter
    arrivals, ends = meter.columns["arrival"], meter.columns["e2e"]
    assert arrivals[1] == pytest.approx(arrivals[0] + ends[0] + 7)
    assert meter.num_cached_tokens == 32


def test_bailian_may_come_when_it_came(tmp_path: Path) -> None:
    rows = (bailian(9, -1, 3.0, 40, 5, 1, 2), bailian(4, 9, 10.0, 70, 5, 1, 2, 3, 4))
    workload = load(tmp_path, json_lines(*rows), "trace.jsonl", chats=False)
    assert [each.parent for each in workload.arrivals] == [None, None]
    assert times(workload) == [0, 7]


def test_a_turn_whose_chat_began_before_the_window_stands_alone_and_is_counted(
    tmp_path: Path,
) -> None:
    rows = (bailian(1, -1, 0.0, 40, 5), bailian(2, 1, 10.0, 70, 5), bailian(3, -1, 11.0, 7, 5))
    workload = load(tmp_path, json_lines(*rows), "trace.jsonl", window=(5, 100))
    assert [each.parent for each in workload.arrivals] == [None, None]
    assert workload.counts == {"chats whose beginning is not there": 1}
    assert times(workload) == [5, 6]


def test_common_column_names_are_known(tmp_path: Path) -> None:
    workload = load(tmp_path, "arrival_s,input_tokens,output_tokens,tenant\n1.5,10,2,a\n4,20,3,b\n")
    assert times(workload) == [0, 2.5]
    assert [each.tenant for each in workload.arrivals] == ["a", "b"]


@pytest.mark.parametrize("name", ["trace.csv", "trace.jsonl"])
def test_columns_can_be_named(tmp_path: Path, name: str) -> None:
    text = "when,in,out\n3,10,2\n1,20,3\n"
    if name.endswith("jsonl"):
        text = json_lines({"when": 3, "in": 10, "out": 2}, {"when": 1, "in": 20, "out": 3})
    workload = load(tmp_path, text, name, columns=parse_columns("time=when,prompt=in,output=out"))
    assert lengths(workload) == [(20, 3), (10, 2)]
    assert times(workload) == [0, 2]


def test_a_compressed_file_is_the_same(tmp_path: Path) -> None:
    plain = load(tmp_path, AZURE_2023)
    path = tmp_path / "packed.csv.gz"
    path.write_bytes(gzip.compress(AZURE_2023.encode()))
    assert load_trace(path).digest == plain.digest


def test_first_window_and_time_scale(tmp_path: Path) -> None:
    text = "time,prompt,output\n" + "".join(f"{100 + i},{i + 1},1\n" for i in range(20))
    workload = load(tmp_path, text, window=(5, 15), first=4, time_scale=0.5)
    assert [prompt for prompt, _ in lengths(workload)] == [6, 7, 8, 9]
    assert times(workload) == [0, 0.5, 1, 1.5]


def test_what_is_too_long_is_clipped_or_dropped_with_a_count(tmp_path: Path) -> None:
    text = "time,prompt,output\n0,900,50\n1,2000,50\n2,10,5000\n"
    clipped = load(tmp_path, text, max_len=1000)
    assert lengths(clipped) == [(900, 50), (950, 50), (1, 999)]
    assert clipped.counts == {"clipped": 2}
    dropped = load(tmp_path, text, max_len=1000, too_long="drop")
    assert lengths(dropped) == [(900, 50)]
    assert dropped.counts == {"too long, dropped": 2}


def test_no_id_repeats_where_rows_do(tmp_path: Path) -> None:
    workload = load(tmp_path, "time,prompt,output\n" + "1,5,5\n" * 30)
    assert len({each.request_id for each in workload.arrivals}) == 30


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("x,10,2", "trace.csv:3: time: got 'x'"),
        ("1,-5,2", "trace.csv:3: prompt: got '-5'"),
        ("1,10,2.5", "trace.csv:3: output: got '2.5'"),
        ("1,10", "trace.csv:3: output: got None"),
        ("1,nan,3", "trace.csv:3: prompt: got 'nan'"),
    ],
)
def test_a_bad_row_is_told_with_file_and_line(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, f"time,prompt,output\n0,10,2\n{row}\n")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{not json", "trace.jsonl:2: this is not JSON"),
        ("[1]", "trace.jsonl:2: got list"),
        ('{"timestamp": 1, "output_length": 3, "hash_ids": []}', ":2: 'input_length' is missing"),
        (
            '{"timestamp": 1, "input_length": 9, "output_length": 3, "hash_ids": [-1]}',
            "trace.jsonl:2: hash_ids: got '[-1]'",
        ),
    ],
)
def test_a_bad_line_is_told_with_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, json_lines(mooncake(0, 9, 5, 7)) + line + "\n", "trace.jsonl")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has no rows"),
        ("time,prompt,output\n", "it has no rows"),
        ("time,prompt,output\n1,0,0\n", "nothing is left of it"),
        ("a,b,c\n1,2,3\n", "no column for prompt and output; it has a, b, c"),
        ("prompt,output\n1,2\n", "no column for time"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    assert words in str(error.value)


def test_a_damaged_compressed_file_is_told(tmp_path: Path) -> None:
    rows = "".join(f"{time},{time * 7919 % 997},{time % 89 + 1}\n" for time in range(3000))
    data = bytearray(gzip.compress(f"time,prompt,output\n{rows}".encode()))
    data[200:400] = bytes(byte ^ 0xFF for byte in data[200:400])
    (tmp_path / "damaged.csv.gz").write_bytes(data)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_trace(tmp_path / "damaged.csv.gz")


def test_a_row_without_tenant_belongs_to_none(tmp_path: Path) -> None:
    workload = load(tmp_path, "time,prompt,output,tenant\n0,1,2,\n1,1,2,a\n")
    assert [each.tenant for each in workload.arrivals] == [None, "a"]


@pytest.mark.parametrize(
    "reading", [{"format": "azure"}, {"columns": {"time": "a"}}, {"window": (0, 5)}]
)
def test_what_is_of_traces_does_not_go_with_a_spec(reading: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="it goes with a trace, not with 'poisson'"):
        Source(text="poisson", reading=Reading(**reading))


def test_a_format_can_be_named_and_must_be_known(tmp_path: Path) -> None:
    text = json_lines(mooncake(2000, 9, 5, 7), mooncake(4000, 9, 5, 7))
    assert times(load(tmp_path, text, "trace.jsonl", format="plain")) == [0, 2000]
    with pytest.raises(ConfigError, match="Did you mean 'mooncake'"):
        load(tmp_path, text, "trace.jsonl", format="moon")


def test_classes_are_laid_over_a_trace_by_the_seed(tmp_path: Path) -> None:
    text = "time,prompt,output\n" + "".join(f"{i},{i + 1},1\n" for i in range(200))
    load(tmp_path, text)
    classes = Classes(tenants=4, weights="1|1|1|2", priority="0|5", slo="1/0.05|-/-")
    one, same, other = (
        load_trace(tmp_path / "trace.csv", classes=classes, seed=seed) for seed in (1, 1, 2)
    )
    assert one.digest == same.digest != other.digest
    assert times(one) == times(other) and lengths(one) == lengths(other)
    assert {each.tenant for each in one.arrivals} == {"t0", "t1", "t2", "t3"}
    assert {each.priority for each in one.arrivals} == {0, 5}
    assert one.tenant_weights["t3"] == 2
    assert one.source["seed_varies"] == ["tenants", "priority", "slo"]
    assert one.source["gaps"] == "as recorded"


def test_resampling_keeps_the_requests_and_draws_gaps_from_the_recorded_ones() -> None:
    arrivals = [
        Arrival(request_id=f"r{i}", time=float(i * i), prompt_len=i + 1, output_len=1)
        for i in range(400)
    ]
    drawn = resample_gaps(arrivals, 1)
    assert [each.prompt_len for each in drawn] == [each.prompt_len for each in arrivals]
    gaps = [after.time - before.time for before, after in pairwise(drawn)]
    assert set(gaps) <= {2.0 * i + 1 for i in range(399)}
    assert fmean(gaps) == pytest.approx(400, rel=0.35)
    assert drawn != resample_gaps(arrivals, 2)


def test_resampling_keeps_bursts_together() -> None:
    arrivals, time = [], 0.0
    for i in range(1000):
        time += 0.01 if i // 100 % 2 else 1.0
        arrivals.append(Arrival(request_id=f"r{i}", time=time, prompt_len=1, output_len=1))
    drawn = [each.time for each in resample_gaps(arrivals, 3)]
    short = [after - before < 0.5 for before, after in pairwise(drawn)]
    changes = sum(one != other for one, other in pairwise(short))
    assert changes < 150  # gaps drawn one by one would change about 500 times


def test_scaled_times_leave_think_times_alone() -> None:
    arrivals = [
        Arrival(request_id="a", time=4.0, prompt_len=1, output_len=1),
        Arrival(request_id="b", time=3.0, prompt_len=1, output_len=1, parent="a"),
    ]
    scaled = scale_time(Workload(name="w", arrivals=arrivals), 0.5)
    assert [each.time for each in scaled.arrivals] == [2.0, 3.0]
    assert scaled.source["times_scaled_by"] == 0.5


def test_a_repeated_workload_repeats_its_chats_under_other_ids() -> None:
    arrivals = [
        Arrival(request_id="a", time=4.0, prompt_len=1, output_len=1),
        Arrival(request_id="b", time=3.0, prompt_len=1, output_len=1, parent="a"),
    ]
    five = repeat(Workload(name="w", arrivals=arrivals), 5).arrivals
    assert [each.request_id for each in five] == ["a", "b", "a.1", "b.1", "a.2"]
    assert [each.parent for each in five] == [None, "a", None, "a.1", None]


def test_the_public_azure_trace_reads_as_published() -> None:
    workload = load_trace(public("azure2023_conv.csv.gz"))
    assert len(workload.arrivals) == 19_366
    assert fmean(each.output_len for each in workload.arrivals) == pytest.approx(211.1, abs=0.1)
    assert workload.counts == {"clipped": 1}


def test_the_public_mooncake_trace_has_the_published_hit_rate() -> None:
    _, rows = read_rows(public("mooncake_fast25_synthetic.jsonl.gz"))
    seen: set[int] = set()
    hits = blocks = 0
    for row in rows:
        fresh = next((i for i, name in enumerate(row.hash_ids) if name not in seen), None)
        hits += len(row.hash_ids) if fresh is None else fresh
        blocks += len(row.hash_ids)
        seen.update(row.hash_ids)
    assert hits / blocks == pytest.approx(0.64, abs=0.001)


def test_the_public_length_files_read_as_published() -> None:
    lengths = load_trace(public("llmservingsim_sharegpt300_lengths.csv.gz"))
    assert len(lengths.arrivals) == 300
    with pytest.raises(ConfigError, match="poisson:rate=8,lengths="):
        load_trace(public("vidur_arxiv_summarization_lengths.csv.gz"))
