"""Token counts, against hand-made merges; the words, against the split they imitate."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phonate.engine.models.text_tokens import MAX_PIECE, TextTokens, _word_pattern

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ã ©", "ä ½", "ä½ ł"]
TOKENS = TextTokens(MERGES)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("hello", 1),
        ("hell", 1),
        ("helo", 3),  # he l o
        ("hello hello", 3),  # the space is not merged with "hello"
        ("hello w", 2),
        ("é", 1),
        ("e\u0301", 1),  # NFC first
        ("你", 1),
        ("你你", 2),
        ("12", 2),  # every digit is a word
        ("hello12", 3),
        ("\U0001f600", 4),  # four bytes
        ("!!", 2),
    ],
)
def test_counts(text: str, count: int) -> None:
    assert TOKENS.count(text) == count


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, I'm here", ["Hello", ",", " I", "'m", " here"]),
        ("don'T WE'LL", ["don", "'T", " WE", "'LL"]),
        ("a  b", ["a", " ", " b"]),
        ("a\n\n b", ["a", "\n\n", " b"]),
        ("x ... y", ["x", " ...", " y"]),
        ("½²Ⅳ", ["½", "²", "Ⅳ"]),
        ("$5.3!\n", ["$", "5", ".", "3", "!\n"]),
        ("日本語です", ["日本語です"]),
        ("end  ", ["end", "  "]),
        ("snake_case", ["snake", "_case"]),
    ],
)
def test_words_as_qwen2_splits_them(text: str, words: list[str]) -> None:
    assert _word_pattern().findall(text) == words


@given(st.text(max_size=200))
def test_words_lose_nothing_and_count_is_bounded(text: str) -> None:
    assert "".join(_word_pattern().findall(text)) == text
    assert TOKENS.count(text) <= 3 * len(text.encode("utf-8", errors="replace"))


def test_long_words_take_linear_time_and_never_fewer_tokens() -> None:
    merges = ["a a", "aa aa", "aaaa aaaa"]
    tokens = TextTokens(merges)
    started = time.monotonic()
    assert tokens.count("a" * 100_000) == 100_000 // 8
    assert time.monotonic() - started < 5
    assert tokens.count("a" * (MAX_PIECE + 4)) >= (MAX_PIECE + 4 + 7) // 8
