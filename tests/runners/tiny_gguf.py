"""A llama of two layers in a GGUF file, with a byte-level tokenizer, made on the spot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

HIDDEN, HEADS, KV_HEADS, FFN, LAYERS, VOCABULARY = 32, 4, 2, 64, 2, 259


def permute(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """From rotate-half order to interleaved pairs, as a GGUF holds q and k."""
    rows, hidden = weight.shape
    return weight.reshape(num_heads, 2, -1, hidden).swapaxes(1, 2).reshape(rows, hidden)


def tiny_tensors() -> dict[str, np.ndarray]:
    import numpy as np  # noqa: PLC0415

    random = np.random.default_rng(7)
    kv = HIDDEN // HEADS * KV_HEADS
    shapes = {"token_embd": (VOCABULARY, HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.{name}": shape
            for name, shape in {
                "attn_norm": (HIDDEN,),
                "ffn_norm": (HIDDEN,),
                "attn_q": (HIDDEN, HIDDEN),
                "attn_k": (kv, HIDDEN),
                "attn_v": (kv, HIDDEN),
                "attn_output": (HIDDEN, HIDDEN),
                "ffn_gate": (FFN, HIDDEN),
                "ffn_up": (FFN, HIDDEN),
                "ffn_down": (HIDDEN, FFN),
            }.items()
        }
    return {
        f"{name}.weight": random.standard_normal(shape, dtype="float32")
        for name, shape in shapes.items()
    }


def add_fields(writer: Any) -> None:
    """What a llama file says of itself, with a byte-level tokenizer."""
    from tokenizers import pre_tokenizers  # noqa: PLC0415

    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*letters, "ab", "<start>", "<end>"])
    writer.add_token_types([1] * 257 + [3, 3])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(258)
    writer.add_unk_token_id(257)
    writer.add_pad_token_id(258)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")


def quantisation(name: str, weight: np.ndarray) -> Any:
    from gguf import GGMLQuantizationType  # noqa: PLC0415

    if weight.ndim == 1:
        return None
    return GGMLQuantizationType.Q8_0 if "embd" in name else GGMLQuantizationType.Q4_1


def stored(weight: np.ndarray, kind: Any) -> np.ndarray:
    from gguf.quants import quantize  # noqa: PLC0415

    return quantize(weight, kind)


def write_gguf(path: Path) -> None:
    """A llama of two layers; projections in Q4_1, the embedding in Q8_0, norms in F32."""
    import gguf  # noqa: PLC0415

    writer = gguf.GGUFWriter(path, "llama")
    add_fields(writer)
    for name, weight in tiny_tensors().items():
        kind = quantisation(name, weight)
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2])
        ordered = weight if heads is None else permute(weight, heads)
        writer.add_tensor(name, ordered if kind is None else stored(ordered, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
