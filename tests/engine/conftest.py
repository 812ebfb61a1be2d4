"""A tokenizer whose tokens are bytes: every character beyond ASCII is several of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
