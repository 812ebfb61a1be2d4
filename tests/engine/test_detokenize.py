from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.engine.detokenize import StopMatch, TextStream
from tests.engine.conftest import ByteTokenizer


def feed(stream: TextStream, text: str | bytes) -> list[str]:
    """Push all tokens until a stop string; the pieces shown after each token, then the rest."""
    pieces = []
    for token in text.encode() if isinstance(text, str) else text:
        stopped = stream.push(token)
        if stopped:
            break
        pieces.append(stream.take(final=False))
    stream.close()
    return [*pieces, stream.take(final=True)]


def test_half_a_character_is_never_shown(tokenizer: ByteTokenizer) -> None:
    pieces = feed(TextStream(tokenizer), "a🙂é")
    assert pieces == ["a", "", "", "", "🙂", "", "é", ""]


def test_what_is_left_of_a_half_character_is_shown_at_the_end(tokenizer: ByteTokenizer) -> None:
    pieces = feed(TextStream(tokenizer), b"a\xc3")
    assert "".join(pieces) == "a\ufffd"


def test_a_stop_string_is_found_in_what_is_left_at_the_end(tokenizer: ByteTokenizer) -> None:
    stream = TextStream(tokenizer, stop=("b\ufffd",))
    assert "".join(feed(stream, b"ab\xc3")) == "a"
    assert stream.stopped_by == "b\ufffd"


@given(st.text())
def test_pieces_join_to_the_whole_text(text: str) -> None:
    stream = TextStream(ByteTokenizer())
    assert "".join(feed(stream, text)) == text == stream.text


def test_text_ends_before_the_stop_string(tokenizer: ByteTokenizer) -> None:
    stream = TextStream(tokenizer, stop=("END",))
    assert "".join(feed(stream, "one two END three")) == "one two "
    assert stream.stopped_by == "END"


def test_what_may_become_a_stop_string_is_held_back(tokenizer: ByteTokenizer) -> None:
    stream = TextStream(tokenizer, stop=("END",))
    assert feed(stream, "aENx") == ["a", "", "", "ENx", ""]
    assert stream.stopped_by is None


def test_of_several_stop_strings_the_first_in_the_text_counts(tokenizer: ByteTokenizer) -> None:
    stream = TextStream(tokenizer, stop=("cd", "bcd"))
    assert "".join(feed(stream, "abcde")) == "a"
    assert stream.stopped_by == "bcd"


def test_stop_strings_are_not_obeyed_before_min_tokens(tokenizer: ByteTokenizer) -> None:
    stream = TextStream(tokenizer, stop=("x",), min_tokens=4)
    assert "".join(feed(stream, "axbcdx")) == "axbcd"


@given(st.text(alphabet="abé", max_size=30), st.lists(st.text("abé", min_size=1), min_size=1))
def test_nothing_of_a_stop_string_is_ever_shown(text: str, stop: list[str]) -> None:
    stream = TextStream(ByteTokenizer(), stop=tuple(stop))
    shown = "".join(feed(stream, text))
    assert shown == stream.text
    assert not any(each in shown for each in stop)
    assert text.startswith(shown)
    assert (stream.stopped_by is None) == (shown == text)


@pytest.mark.parametrize("stop", [(), ("zz",)])
def test_taking_twice_gives_nothing_the_second_time(
    tokenizer: ByteTokenizer, stop: tuple[str, ...]
) -> None:
    stream = TextStream(tokenizer, stop=stop)
    stream.push(ord("a"))
    assert stream.take(final=False) == "a"
    assert stream.take(final=True) == ""


def shortest_stop(text: str, stops: list[str]) -> str:
    """The text before the first stop string that is complete, of several the longest."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


@given(st.text("ab", max_size=40), st.lists(st.text("ab", min_size=1, max_size=6), max_size=4))
def test_stop_strings_are_found_as_by_looking_everywhere(text: str, stops: list[str]) -> None:
    stream = TextStream(ByteTokenizer(), stop=tuple(stops))
    assert "".join(feed(stream, text)) == stream.text == shortest_stop(text, stops)


def test_each_character_is_looked_at_a_few_times_however_long_the_stop_string() -> None:
    num_looks = 0

    class Looking(str):
        __slots__ = ()

        def __getitem__(self, at: Any) -> str:
            nonlocal num_looks
            num_looks += 1
            return super().__getitem__(at)

    match = StopMatch(Looking("a" * 5_000 + "b"))
    num_looks = 0
    for _ in range(20_000):
        assert not match.push("a")
    assert num_looks < 3 * 20_000


def test_the_parts_of_a_character_begin_where_it_does(tokenizer: ByteTokenizer) -> None:
    stream = TextStream(tokenizer)
    feed(stream, "a\u00e9b")
    assert stream.starts == [0, 1, 1, 2]
