"""Text to token ids and back, and chat messages through the model's own template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from framework.errors import ModelError, RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Tokenizer(Protocol):
    """What the front needs to speak with people."""

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text; special tokens in it are recognised."""

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation, ready for the assistant's answer."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, without special tokens; incomplete characters become U+FFFD."""

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` can work."""


class HuggingFaceTokenizer:
    """The tokenizer of a Hugging Face model directory.

    Raises:
        ModelError: the directory holds no usable tokenizer.
    """

    def __init__(self, directory: Path) -> None:
        from transformers import AutoTokenizer  # noqa: PLC0415  (a second)

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        except Exception as error:
            first_line = str(error).strip().partition("\n")[0]
            raise ModelError(f"{directory}: no usable tokenizer: {first_line}") from error

    @property
    def has_chat_template(self) -> bool:
        """Whether the model comes with a chat template."""
        return bool(self._tokenizer.chat_template)

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, with the begin token if the model wants one."""
        return list(self._tokenizer(text)["input_ids"])

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation.

        Raises:
            RequestError: the model has no chat template, or it refuses the messages.
        """
        if not self.has_chat_template:
            raise RequestError("messages: this model has no chat template; use prompt instead")
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=False
            )
        except Exception as error:
            raise RequestError(f"messages: the chat template refuses them: {error}") from error
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        text: str = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text
