"""What the Triton runner cannot run is refused with a sentence, before the first request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoConfig, AutoModelForCausalLM

from framework import ModelError, SchedulerConfig
from runners.triton import TritonRunner
from runners.triton.loading import accept
from tests.runners import tiny

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on the CPU, so in the interpreter alone"
)
CONFIG = SchedulerConfig(num_blocks=8, block_size=4, max_model_len=16)
PLAIN = {"vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
OWN: dict[str, dict[str, Any]] = {
    "bloom": PLAIN,
    "falcon": {**PLAIN, "num_kv_heads": 4},
    "llama4_text": {**tiny.SIZES, "intermediate_size_mlp": 96, "num_local_experts": 2},
    "qwen3_next": {
        **tiny.SIZES,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
    },
}


def save(config: Any, directory: Path) -> Path:
    """A random model with its own attention."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.save_pretrained(directory)
    return directory


def load(directory: Path, **options: Any) -> TritonRunner:
    given = {"device": "cpu", "dtype": "float32", **options}
    return TritonRunner.from_model(directory, CONFIG, **given)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("bloom", "its attention does not go through transformers' AttentionInterface"),
        ("falcon", "its attention does not go through transformers' AttentionInterface"),
        ("llama4_text", "it has layers of kind chunked_attention; allowed: full_attention"),
        ("qwen3_next", "its attention does not go through transformers' AttentionInterface"),
    ],
)
def test_architectures_that_a_paged_cache_cannot_serve_are_refused(
    tmp_path: Path, kind: str, reason: str
) -> None:
    directory = save(AutoConfig.for_model(kind, **OWN[kind]), tmp_path)
    with pytest.raises(ModelError, match=f"architecture '{kind}' cannot run: {reason}"):
        load(directory)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_rotary_embeddings_that_depend_on_the_batch_are_refused(
    tmp_path: Path, rope: dict[str, Any]
) -> None:
    rope = {"rope_theta": 10_000.0, "original_max_position_embeddings": 128, **rope}
    directory = save(tiny.config("llama", rope_parameters=rope), tmp_path)
    kind = rope["rope_type"]
    with pytest.raises(ModelError, match=f"rotary embedding .{kind}. depends on the longest"):
        load(directory)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "tpu"}, "device: got 'tpu', allowed: 'cuda', 'cuda:N' or 'cpu'"),
        ({"device": "cuda:first"}, "device: got 'cuda:first', allowed: 'cuda', 'cuda:N' or 'cpu'"),
        ({"device": "cuda:"}, "device: got 'cuda:', allowed: 'cuda', 'cuda:N' or 'cpu'"),
        ({"dtype": "bfloat16"}, "dtype: got 'bfloat16' on 'cpu', .* allowed: 'float32', 'float16'"),
        ({"dtype": "int8"}, "dtype: got 'int8', allowed: float32, bfloat16, float16"),
    ],
    ids=str,
)
def test_options_that_are_not_known_are_refused(
    tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ModelError, match=sentence):
        load(tmp_path, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_without_a_gpu_the_default_device_is_refused(tmp_path: Path, device: str) -> None:
    with pytest.raises(ModelError, match=f"device: got '{device}', but torch finds no GPU here"):
        load(tmp_path, device=device)


def test_the_cpu_is_for_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(ModelError, match=r"device: got 'cpu'.*TRITON_INTERPRET=1.*runner 'torch'"):
        load(tmp_path)


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a directory"):
        load(tmp_path / "nowhere")


def test_attention_that_differs_from_its_own_eager_one_is_refused() -> None:
    model = tiny.build("llama")
    for layer in model.model.layers:
        layer.self_attn.scaling = torch.nan
    with pytest.raises(ModelError, match="logits differ from its own by nan"):
        accept(model)


def test_a_saved_model_is_loaded_with_fused_modules(tmp_path: Path) -> None:
    runner = load(save(tiny.config("llama"), tmp_path))
    assert (runner.vocab_size, runner.max_model_len) == (tiny.VOCABULARY, 256)
    assert (runner.dtype, runner.device, runner.eos_token_ids) == ("float32", "cpu", ())
    assert runner.num_blocks_that_fit() is None
    assert type(runner.model.model.layers[0]).__name__ == "FusedLayer"
