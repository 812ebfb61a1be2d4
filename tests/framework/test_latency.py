from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.errors import ConfigError
from framework.latency import (
    LinearLatency,
    TableLatency,
    from_model,
    gpu_names,
    latency_from,
    latency_names,
    load_latency,
)
from framework.protocols import Batch
from framework.study.sensitivity import variations

if TYPE_CHECKING:
    from pathlib import Path

LLAMA_3_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
}
TABLE = TableLatency(
    base_ms=1.0, pair_ms=1e-6, context_ms=1e-5, curve=((1, 7.0), (64, 7.5), (512, 40.0))
)
MODELS = [
    *(load_latency(name) for name in latency_names()),
    *(from_model(LLAMA_3_8B, gpu) for gpu in gpu_names()),
    TABLE,
]
each_model = pytest.mark.parametrize("latency", MODELS, ids=lambda latency: latency.name)
counts = st.integers(0, 10**6)


@each_model
def test_an_empty_step_takes_no_time(latency: LinearLatency) -> None:
    assert latency.predict(Batch()) == 0.0


@each_model
@given(
    batch=st.builds(Batch, st.integers(1, 10**6), counts, counts, counts, counts, counts),
    more=st.builds(Batch, counts, counts, counts, counts, counts, counts),
)
def test_more_of_anything_never_takes_less_time(
    latency: LinearLatency, batch: Batch, more: Batch
) -> None:
    for one in attrs.fields(Batch):
        grown = attrs.evolve(
            batch, **{one.name: getattr(batch, one.name) + getattr(more, one.name)}
        )
        assert latency.predict(grown) >= latency.predict(batch) > 0


def test_a_curve_is_met_at_its_points_flat_before_and_straight_on_beyond() -> None:
    curve = TableLatency(curve=[[4, 2.0], [8, 4.0], [16, 5.0]])
    found = [1000 * curve.predict(Batch(count)) for count in (1, 4, 6, 8, 12, 16, 24, 800)]
    assert found == pytest.approx([2.0, 2.0, 3.0, 4.0, 4.5, 5.0, 6.0, 103.0])


def test_a_curve_that_falls_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"curve: got .*both rise"):
        TableLatency(curve=((1, 5.0), (2, 4.0)))
    with pytest.raises(ConfigError, match=r"curve: got 7, allowed"):
        latency_from({"curve": 7})


@pytest.mark.parametrize("latency", [MODELS[0], TABLE], ids=["sum", "table"])
def test_a_model_comes_back_from_its_file(latency: LinearLatency, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(latency.as_dict()))
    assert load_latency(file) == latency
    assert type(load_latency(file)) is type(latency)


def test_a_study_varies_the_curve_like_any_other_term() -> None:
    varied = {(term, factor): model for term, factor, model in variations(TABLE)}
    assert {term for term, _ in varied} == {"base_ms", "pair_ms", "context_ms", "curve"}
    slower = varied["curve", 1.2]
    assert slower.predict(Batch(64)) - TABLE.predict(Batch(64)) == pytest.approx(0.0015)
    with pytest.raises(ConfigError, match=r"curves: no such term"):
        TABLE.scaled(curves=2.0)


def _batches() -> list[Batch]:
    decodes = [Batch(b, 0, 0.0, b * ctx, b, b) for b in (1, 8, 64, 256) for ctx in (200, 2000)]
    chunks = [Batch.of(q, k) for q in (64, 512, 2048) for k in (0, 4000)]
    return [*decodes, *chunks, *(one + other for one in decodes for other in chunks)]


@pytest.mark.parametrize(
    ("gpu", "shipped"), [("a100-80g", "llama3-8b-a100"), ("h100", "llama3-8b-h100")]
)
def test_a_data_sheet_comes_near_to_what_was_fitted(gpu: str, shipped: str) -> None:
    computed, fitted = from_model(LLAMA_3_8B, gpu), load_latency(shipped)
    for batch in _batches():
        assert computed.predict(batch) == pytest.approx(fitted.predict(batch), rel=0.05)
    assert computed.kv_bytes_per_token == fitted.kv_bytes_per_token
    assert computed.num_kv_tokens == pytest.approx(fitted.num_kv_tokens, rel=0.1)


def test_the_text_model_of_a_larger_config_counts() -> None:
    inside = {"model_type": "llava", "text_config": LLAMA_3_8B}
    computed = from_model(inside, "h200")
    assert attrs.evolve(computed, name="") == attrs.evolve(from_model(LLAMA_3_8B, "h200"), name="")


@pytest.mark.parametrize(
    ("changed", "gpu", "message"),
    [
        ({"num_hidden_layers": None}, "h100", r"config.json: num_hidden_layers: got None"),
        ({"num_local_experts": 8}, "h100", r"num_local_experts: got 8, allowed: no experts"),
        ({"quantization_config": {"bits": 4}}, "h100", r"no quantised weights"),
        ({"num_hidden_layers": 200}, "a40", r"gpu: got 'A40', allowed: memory for"),
        ({}, "h10", r"gpu: got 'h10', allowed: a10, .* Did you mean 'h100'"),
    ],
)
def test_what_cannot_be_computed_is_refused(
    changed: dict[str, Any], gpu: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        from_model({**LLAMA_3_8B, **changed}, gpu)


def test_model_at_gpu_names_a_directory_or_its_file(tmp_path: Path) -> None:
    directory = tmp_path / "my-llama"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(LLAMA_3_8B))
    found = load_latency(f"{directory}@l40s")
    assert found.name == "my-llama at 16 bits on one L40S"
    assert load_latency(f"{directory / 'config.json'}@l40s") == found
    with pytest.raises(ConfigError, match=r"latency: no such file: .*elsewhere"):
        load_latency(f"{tmp_path / 'elsewhere'}@l40s")


@pytest.mark.parametrize("tokens", [0, -5, "x", 1e5])
def test_room_for_kv_is_a_number_of_tokens(tokens: Any) -> None:
    with pytest.raises(ConfigError, match=r"num_kv_tokens: got .*, allowed: an int of at least 1"):
        LinearLatency(num_kv_tokens=tokens)
