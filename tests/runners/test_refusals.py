"""What cannot run is refused with a sentence, before the first request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from framework import ModelError, SchedulerConfig  # noqa: E402
from runners.common.routing import refuse_unsafe  # noqa: E402
from runners.torch_paged import TorchRunner, loading  # noqa: E402
from runners.torch_paged.linear import FusedRMSNorm, PackedLinear, speed_up  # noqa: E402
from tests.runners import tiny  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = SchedulerConfig(num_blocks=8, block_size=4, max_model_len=16)


def load(directory: Path, **options: Any) -> TorchRunner:
    return TorchRunner.from_model(directory, CONFIG, num_threads=1, **options)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tiny.original("llama").save_pretrained(tmp_path)
    return tmp_path


def test_a_saved_model_is_loaded(directory: Path) -> None:
    runner = load(directory)
    assert (runner.vocab_size, runner.max_model_len) == (tiny.VOCABULARY, 256)
    assert runner.eos_token_ids == ()


@pytest.mark.parametrize(("eos", "expected"), [(5, (5,)), ([5, 7], (5, 7))])
def test_end_tokens_come_from_the_generation_config(
    directory: Path, eos: Any, expected: tuple[int, ...]
) -> None:
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    assert load(directory).eos_token_ids == expected


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "no config.json"),
        ({"config.json": "{"}, "is not JSON"),
        ({"config.json": "[]"}, "names no model_type"),
        ({"config.json": '{"a": 1}'}, "names no model_type"),
        ({"config.json": '{"model_type": "llama"}'}, "holds no weights"),
        ({"config.json": '{"model_type": "nobodys"}', "m.safetensors": ""}, "cannot be loaded"),
        ({"config.json": '{"model_type": "llama"}', "model.safetensors": "x"}, "cannot be loaded"),
    ],
)
def test_a_directory_that_is_no_model_is_refused(
    tmp_path: Path, files: dict[str, str], sentence: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=sentence):
        load(tmp_path)


def test_missing_tensors_are_not_made_up(directory: Path) -> None:
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    path = directory / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 of its tensors .* 'model.layers.1.mlp.up_proj"):
        load(directory)


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a directory"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dtype": "int8"}, "dtype: got 'int8', allowed: float32"),
        ({"device": "cuda"}, "device: got 'cuda', allowed: 'cpu'"),
    ],
)
def test_unknown_options_are_refused(
    directory: Path, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ModelError, match=sentence):
        load(directory, **options)


def test_attention_that_is_not_routed_is_refused() -> None:
    fields = {"vocab_size": 50, "hidden_size": 32, "n_layer": 1, "n_head": 2}
    model = transformers.BloomForCausalLM(transformers.BloomConfig(**fields))
    with pytest.raises(ModelError, match=r"'bloom' cannot run.*AttentionInterface"):
        refuse_unsafe(model)


@pytest.mark.parametrize("kind", ["chunked_attention", "linear_attention"])
def test_layers_of_another_kind_are_refused(kind: str) -> None:
    model = tiny.build("llama")
    model.config.layer_types = ["full_attention", kind]
    with pytest.raises(ModelError, match=f"layers of kind {kind}"):
        loading.accept(model)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_embeddings_that_depend_on_the_batch_are_refused(kind: str) -> None:
    model = tiny.build("llama")
    model.config.rope_parameters = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    with pytest.raises(ModelError, match=f"{kind}.*would change the others"):
        loading.accept(model)


def test_attention_that_differs_from_eager_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build("llama")
    for layer in model.model.layers:
        layer.self_attn.scaling = torch.nan
    with pytest.raises(ModelError, match="logits differ from its own by nan"):
        loading.accept(model)


def test_a_layer_that_bypasses_the_cache_is_refused() -> None:
    model = tiny.build("llama")
    model.config.num_hidden_layers = 3
    with pytest.raises(ModelError, match=r"4 attention calls .* 6 were expected"):
        loading.accept(model)


def test_fast_modules_stand_in_only_where_they_agree() -> None:
    class OddRMSNorm(torch.nn.RMSNorm):
        """Looks like one and is not."""

        def forward(self, x: Any) -> Any:
            return super().forward(x) + 1

    class OddLinear(torch.nn.Linear):
        """A subclass may do anything."""

    model = torch.nn.Sequential(
        torch.nn.Linear(8, 12),
        torch.nn.RMSNorm(12, eps=1e-6),
        OddRMSNorm(12, eps=1e-6),
        OddLinear(12, 4),
    )
    x = torch.randn(5, 8)
    with torch.inference_mode():
        before = model(x)
        assert speed_up(model) == 2
        torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)
    kinds = [type(module) for module in model]
    assert kinds == [PackedLinear, FusedRMSNorm, OddRMSNorm, OddLinear]
