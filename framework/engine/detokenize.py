"""Token ids to text, bit by bit: never half a character, never past a stop string."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from framework.engine.tokenizer import Tokenizer

HALF_CHARACTER = "\ufffd"


@define(eq=False)
class TextStream:
    """The text of one output as it grows.

    Text is held back while its last character is incomplete, and while it may yet turn out to be
    the beginning of a stop string.

    Attributes:
        tokenizer: decodes windows of tokens.
        stop: strings that end the output; the text ends just before the first one found.
        min_tokens: no stop string is looked for before so many tokens.
        text: everything decoded so far, cut before a stop string.
        stopped_by: the stop string that was found, or None.
    """

    tokenizer: Tokenizer
    stop: tuple[str, ...] = ()
    min_tokens: int = 0
    text: str = field(default="", init=False)
    stopped_by: str | None = field(default=None, init=False)
    _token_ids: list[int] = field(factory=list, init=False)
    _window_start: int = field(default=0, init=False)
    _num_decoded: int = field(default=0, init=False)
    _num_emitted: int = field(default=0, init=False)
    _search_from: int = field(default=0, init=False)

    def push(self, token_id: int) -> bool:
        """Take the next token; True if a stop string is complete with it."""
        self._token_ids.append(token_id)
        known = self.tokenizer.decode(self._token_ids[self._window_start : self._num_decoded])
        grown = self.tokenizer.decode(self._token_ids[self._window_start :])
        if len(grown) <= len(known) or grown.endswith(HALF_CHARACTER):
            self._skip_unchecked()
            return False
        self._accept(grown[len(known) :])
        return self._find_stop()

    def close(self) -> bool:
        """No token follows: what is left of an incomplete character is text as it stands; True if
        a stop string is complete with it."""
        if self.stopped_by is not None or self._num_decoded == len(self._token_ids):
            return False
        known = self.tokenizer.decode(self._token_ids[self._window_start : self._num_decoded])
        grown = self.tokenizer.decode(self._token_ids[self._window_start :])
        self._accept(grown[len(known) :])
        return self._find_stop()

    def take(self, *, final: bool) -> str:
        """The text that is safe to show and was not taken before."""
        end = len(self.text) if final else len(self.text) - self._num_held_back()
        piece = self.text[self._num_emitted : end]
        self._num_emitted = max(self._num_emitted, end)
        return piece

    def _accept(self, text: str) -> None:
        self.text += text
        self._window_start = self._num_decoded
        self._num_decoded = len(self._token_ids)

    def _skip_unchecked(self) -> None:
        if len(self._token_ids) < self.min_tokens:
            self._search_from = len(self.text)

    def _find_stop(self) -> bool:
        if len(self._token_ids) < self.min_tokens:
            self._search_from = len(self.text)
            return False
        found = [
            (at, text) for text in self.stop if (at := self.text.find(text, self._search_from)) >= 0
        ]
        longest = max(map(len, self.stop), default=0)
        self._search_from = max(self._search_from, len(self.text) - longest + 1)
        if not found:
            return False
        at, self.stopped_by = min(found)
        self.text = self.text[:at]
        return True

    def _num_held_back(self) -> int:
        """Characters at the end of the text that begin a stop string."""
        longest = max(map(len, self.stop), default=1) - 1
        for length in range(min(longest, len(self.text)), 0, -1):
            if any(text.startswith(self.text[-length:]) for text in self.stop):
                return length
        return 0
