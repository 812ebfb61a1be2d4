"""A model directory small enough to make on the spot: byte tokens, two layers, random weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from framework.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

CHAT = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    directory: Path = tmp_path_factory.mktemp("models") / "tiny"
    save_tokenizer(directory)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=256,
        tie_word_embeddings=True,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(directory)
    return directory


def save_tokenizer(directory: Path) -> None:
    """A byte-level tokenizer without merges, with an end token and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, "<end>": 256}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.chat_template = CHAT
    fast.save_pretrained(directory)


@pytest.fixture
def headway() -> Callable[..., Result]:
    """Run the command in this process: headway("generate", ...)."""
    return lambda *arguments: CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def prompts_file(tmp_path: Path) -> Path:
    """Four prompts of two priorities; two of them share a beginning."""
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"id": "a", "prompt": "one two three four five six seven", "priority": 5},
        {"id": "b", "prompt": "one two three four five six eight", "arrival_s": 0.05},
        {"id": "c", "messages": [{"role": "user", "content": "tell me"}], "priority": 5},
        {"id": "d", "prompt_token_ids": [1, 2, 3, 1, 2, 3, 1, 2, 3], "max_tokens": 6},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
