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
        stop: strings that end the output; the text ends just before the first one that is complete
            (of several with one end, the longest).
        min_tokens: no stop string is looked for before so many tokens.
        text: everything decoded so far, cut before a stop string.
        stopped_by: the stop string that was found, or None.
    """

    tokenizer: Tokenizer
    stop: tuple[str, ...] = ()
    min_tokens: int = 0
    text: str = field(default="", init=False)
    stopped_by: str | None = field(default=None, init=False)
    starts: list[int] = field(factory=list, init=False)
    """Where the text of each token begins; all parts of one character begin where it does."""
    _token_ids: list[int] = field(factory=list, init=False)
    _window_start: int = field(default=0, init=False)
    _num_decoded: int = field(default=0, init=False)
    _num_emitted: int = field(default=0, init=False)
    _matches: list[StopMatch] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._matches = [StopMatch(text) for text in self.stop]

    def push(self, token_id: int) -> bool:
        """Take the next token; True if a stop string is complete with it."""
        self._token_ids.append(token_id)
        self.starts.append(len(self.text))
        known = self.tokenizer.decode(self._token_ids[self._window_start : self._num_decoded])
        grown = self.tokenizer.decode(self._token_ids[self._window_start :])
        if len(grown) <= len(known) or grown.endswith(HALF_CHARACTER):
            return False
        return self._accept(grown[len(known) :])

    def close(self) -> bool:
        """No token follows: what is left of an incomplete character is text as it stands; True if
        a stop string is complete with it."""
        if self.stopped_by is not None or self._num_decoded == len(self._token_ids):
            return False
        known = self.tokenizer.decode(self._token_ids[self._window_start : self._num_decoded])
        grown = self.tokenizer.decode(self._token_ids[self._window_start :])
        return self._accept(grown[len(known) :])

    def take(self, *, final: bool) -> str:
        """The text that is safe to show and was not taken before."""
        end = len(self.text) if final else len(self.text) - self._num_held_back()
        piece = self.text[self._num_emitted : end]
        self._num_emitted = max(self._num_emitted, end)
        return piece

    def _accept(self, grown: str) -> bool:
        """More text; True if a stop string is complete within it."""
        start = len(self.text)
        self.text += grown
        self._window_start = self._num_decoded
        self._num_decoded = len(self._token_ids)
        if not self._matches or len(self._token_ids) < self.min_tokens:
            return False
        for end, character in enumerate(grown, start + 1):
            complete = [match for match in self._matches if match.push(character)]
            if complete:
                self.stopped_by = max((match.stop for match in complete), key=len)
                self.text = self.text[: end - len(self.stopped_by)]
                return True
        return False

    def _num_held_back(self) -> int:
        """Characters at the end of the text that begin a stop string."""
        return max((match.num_matched for match in self._matches), default=0)


@define(eq=False)
class StopMatch:
    """How much of a stop string stands at the end of a text that grows.

    Knuth, Morris and Pratt (1977): each character is looked at once, however long the string.
    """

    stop: str
    num_matched: int = 0
    _shorter: list[int] = field(init=False)
    """[i]: the longest end of the first i characters that is also their beginning."""

    def __attrs_post_init__(self) -> None:
        self._shorter = [0, 0]
        for character in self.stop[1:]:
            length = self._shorter[-1]
            while length and self.stop[length] != character:
                length = self._shorter[length]
            self._shorter.append(length + (self.stop[length] == character))

    def push(self, character: str) -> bool:
        """One character more; True if the stop string is complete."""
        if self.num_matched == len(self.stop):
            self.num_matched = self._shorter[-1]
        while self.num_matched and self.stop[self.num_matched] != character:
            self.num_matched = self._shorter[self.num_matched]
        self.num_matched += self.stop[self.num_matched] == character
        return self.num_matched == len(self.stop)
