"""A model that answers with a given text, and a tokenizer whose tokens are bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from framework import SchedulerConfig
from framework.engine.models import LoadedModel
from runners.scripted import ScriptedRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

END = 256


class ByteTokenizer:
    """Token ids are UTF-8 bytes; 256 ends an output and has no text."""

    has_chat_template = True

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self.encode("".join(f"{each['role']}: {each['content']}\n" for each in messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token for token in token_ids if token != END).decode(errors="replace")


@pytest.fixture
def tokenizer() -> ByteTokenizer:
    return ByteTokenizer()


@pytest.fixture
def model(tokenizer: ByteTokenizer) -> Callable[..., LoadedModel]:
    """A scripted model: model("abc", num_blocks=9, ...) answers abcabc... to everything."""

    def build(answer: str | Sequence[int] = "abcdefghij", **limits: Any) -> LoadedModel:
        config = SchedulerConfig(**{"block_size": 4, "max_model_len": 256, **limits})
        tokens = answer.encode() if isinstance(answer, str) else answer
        runner = ScriptedRunner(
            lambda _, position: tokens[position % len(tokens)], block_size=config.block_size
        )
        return LoadedModel(runner, tokenizer, config, eos_token_ids=(END,))

    return build
