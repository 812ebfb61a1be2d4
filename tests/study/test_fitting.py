from __future__ import annotations

import csv
from pathlib import Path
from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.errors import ConfigError
from framework.latency import LinearLatency, TableLatency, load_latency
from framework.protocols import Batch
from framework.study.fitting import Row, fit_latency, judge, read_rows, write_rows
from framework.study.least_squares import nonnegative_solution

PROFILES = Path(__file__).resolve().parents[3] / "shared" / "profiles"
"""Vidur's profiles of single operators, where they are at hand."""
NUM_LAYERS = 32
needs_profiles = pytest.mark.skipif(not PROFILES.is_dir(), reason="no profiles at hand")


def _steps(latency: LinearLatency, count: int, *, sigma: float = 0.0, seed: int = 0) -> list[Row]:
    """Steps of all kinds, timed by a model, each off by a log-normal factor with mean 1."""
    random, rows = Random(seed), []
    for _ in range(count):
        batch = Batch()
        for _ in range(random.choice((0, 1, 4, 16, 64))):
            batch += Batch.of(1, random.randrange(1, 4000))
        for _ in range(random.choice((0, 1, 2)) if batch.num_tokens else 1):
            batch += Batch.of(random.randrange(2, 1024), random.randrange(4000))
        factor = random.lognormvariate(-(sigma**2) / 2, sigma)
        rows.append(Row(batch, latency.predict(batch) * factor))
    return rows


def test_exact_times_are_described_exactly_whatever_the_batch() -> None:
    truth = load_latency("llama3-8b-a100")
    fit = fit_latency(_steps(truth, 300))
    assert fit.mape < 1e-4
    assert fit.bias == pytest.approx(1, abs=1e-4)
    assert judge(fit.latency, _steps(truth, 100, seed=1)).mape < 1e-4
    unseen = Batch.of(4000, 30_000) + Batch(500, 0, 0.0, 5_000_000, 500, 500)
    assert fit.latency.predict(unseen) == pytest.approx(truth.predict(unseen), rel=0.01)


@pytest.mark.parametrize("has_curve", [False, True])
def test_noise_leaves_the_mean_right(has_curve: bool) -> None:
    truth = load_latency("llama3-8b-h100")
    fit = fit_latency(_steps(truth, 600, sigma=0.3), has_curve=has_curve)
    assert fit.mape == pytest.approx(0.24, abs=0.04)
    assert judge(fit.latency, _steps(truth, 300, seed=1)).bias == pytest.approx(1, abs=0.04)


def test_a_few_interrupted_steps_change_little() -> None:
    truth = load_latency("llama3-8b-a100")
    rows = _steps(truth, 300, sigma=0.05)
    stalled = [attrs.evolve(row, seconds=row.seconds + 2.0) for row in rows[::100]]
    fit = fit_latency([*rows, *stalled])
    assert judge(fit.latency, _steps(truth, 100, seed=1)).mape < 0.1


@given(seed=st.integers(0, 10**6), has_curve=st.booleans())
def test_a_fit_to_nonsense_is_monotone_all_the_same(seed: int, has_curve: bool) -> None:
    random = Random(seed)
    rows = [
        attrs.evolve(row, seconds=random.uniform(0.001, 1.0))
        for row in _steps(load_latency("llama3-8b-a100"), 40, seed=seed)
    ]
    latency = fit_latency(rows, has_curve=has_curve).latency
    assert isinstance(latency, TableLatency) is has_curve
    batch = rows[0].batch
    for more in (
        Batch(1),
        Batch(0, 5),
        Batch(0, 0, 9.0),
        Batch(0, 0, 0.0, 9),
        Batch(0, 0, 0, 0, 1),
    ):
        assert latency.predict(batch + more) >= latency.predict(batch)
    assert latency.predict(Batch()) == 0


@given(st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=4, max_size=9))
def test_no_step_aside_improves_a_nonnegative_solution(rows: list[list[int]]) -> None:
    target = [1.0 + place for place in range(len(rows))]
    width = range(4)
    gram = [
        [sum(row[one] * row[two] for row in rows) + 0.01 * (one == two) for two in width]
        for one in width
    ]
    wanted = [sum(row[one] * y for row, y in zip(rows, target, strict=True)) for one in width]
    found = nonnegative_solution(gram, wanted)
    for one in width:
        slope = sum(gram[one][two] * found[two] for two in width) - wanted[one]
        assert found[one] >= 0
        assert slope == pytest.approx(0, abs=1e-5) if found[one] else slope >= -1e-5


def test_what_cannot_be_fitted_is_refused() -> None:
    rows = _steps(load_latency("llama3-8b-a100"), 20)
    with pytest.raises(ConfigError, match=r"rows: got 9, allowed: at least 10"):
        fit_latency(rows[:9])
    with pytest.raises(ConfigError, match=r"rows: got Row.*took some time"):
        fit_latency([*rows, Row(Batch(1), 0.0)])


def test_rows_come_back_from_their_file(tmp_path: Path) -> None:
    rows = _steps(load_latency("llama3-8b-a100"), 20, sigma=0.1)
    write_rows(rows, tmp_path / "rows.csv")
    assert read_rows(tmp_path / "rows.csv") == rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("seconds", "time"), r"rows.csv: no column seconds"),
        (lambda text: text + "1,0,0,0,x,1,0.1\n", r"rows.csv:3: got .*'x'.*allowed: numbers"),
        (lambda text: text + "1,0,0,0,1,1,-1\n", r"rows.csv:3: .*at least 0"),
        (lambda text: text + "1,0,0\n", r"rows.csv:3: "),
    ],
)
def test_a_bad_line_is_named(change: object, message: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    write_rows(_steps(load_latency("llama3-8b-a100"), 1), file)
    file.write_text(change(file.read_text()))  # type: ignore[operator]
    with pytest.raises(ConfigError, match=message):
        read_rows(file)


def _linear_operators(name: str) -> list[Row]:
    """Steps without attention: all layers of a profile of linear operators."""
    with (PROFILES / f"vidur_{name}_tp1_linear_ops.csv").open() as file:
        return [
            Row(
                Batch(int(line.pop("num_tokens"))),
                NUM_LAYERS * (sum(map(float, line.values())) - float(line["emb_ms"])) / 1000,
            )
            for line in csv.DictReader(file)
        ]


@needs_profiles
@pytest.mark.parametrize(
    ("name", "line", "curve"),
    [
        ("a100_llama3_8b", 0.035, 0.025),
        ("a100_llama2_7b", 0.06, 0.035),
        ("h100_llama2_7b", 0.055, 0.04),
        ("a40_llama2_7b", 0.05, 0.03),
    ],
)
def test_measured_linear_layers_are_described_within_a_few_per_cent(
    name: str, line: float, curve: float
) -> None:
    rows = _linear_operators(name)
    assert line / 2 < fit_latency(rows).mape < line
    assert curve / 2 < fit_latency(rows, has_curve=True).mape < curve


@needs_profiles
def test_measured_prefill_attention_is_described_by_its_pairs() -> None:
    with (PROFILES / "vidur_a100_attn_prefill_32q4kv_hd128.csv").open() as file:
        rows = [
            Row(Batch.of(int(chunk), int(context)), NUM_LAYERS * float(time) / 1000)
            for chunk, context, time in list(csv.reader(file))[1:]
        ]
    fit = fit_latency(rows)
    assert fit.mape < 0.13
    assert fit.latency.pair_ms == pytest.approx(4.1e-6, rel=0.15)
