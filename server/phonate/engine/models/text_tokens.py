"""How many tokens a text has, and which strings a vocabulary would obey instead of speaking.

Byte-level BPE as the Qwen2 tokenizer does it: NFC, split into words, merge byte pairs by rank.
Needed for libraries that neither report nor check token counts: a prompt that does not fit must be
refused before the call. Everything is read from the talker's GGUF, on first use (0.3 s for the
real vocabulary).
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import threading
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from phonate.engine.models.gguf_header import read_header

MAX_PIECE = 256
"""Merging is quadratic in the length of a word; a longer one is counted in slices of this many
bytes, which never gives fewer tokens than the whole."""


@functools.cache
def _byte_letters() -> dict[int, str]:
    """GPT-2's stand-ins: printable Latin-1 bytes are themselves, the others follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    rest = (byte for byte in range(256) if byte not in letters)
    return letters | {byte: chr(0x100 + i) for i, byte in enumerate(rest)}


def _category_class(first: str) -> str:
    """The inside of a regex class with every character of a general category ("L", "N")."""
    ranges: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] != first:
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)


@functools.cache
def _word_pattern() -> re.Pattern[str]:
    """Qwen2's split, with \\p{L} and \\p{N} spelled out for Python's re."""
    letter, number = _category_class("L"), _category_class("N")
    return re.compile(
        r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
        rf"|[^\r\n{letter}{number}]?[{letter}]+"
        rf"|[{number}]"
        rf"| ?[^\s{letter}{number}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


class TextTokens:
    """Counts tokens. Thread-safe."""

    def __init__(self, merges: Iterable[str]) -> None:
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, line in enumerate(merges):
            left, _, right = line.partition(" ")
            self._ranks.setdefault((left, right), rank)
        self._count_word = functools.lru_cache(maxsize=8192)(self._merge)

    @classmethod
    def from_talker(cls, talker: Path) -> TextTokens:
        """Raises GgufError."""
        return cls(read_header(talker).strings("tokenizer.ggml.merges"))

    def count(self, text: str) -> int:
        """Tokens of plain text. Special-token strings count as the text they are."""
        letters = _byte_letters()
        total = 0
        for word in _word_pattern().findall(unicodedata.normalize("NFC", text)):
            data = word.encode("utf-8", errors="replace")
            for start in range(0, len(data), MAX_PIECE):
                piece = "".join(letters[byte] for byte in data[start : start + MAX_PIECE])
                total += self._count_word(piece)
        return total

    def _merge(self, word: str) -> int:
        parts = list(word)
        while len(parts) > 1:
            ranked = [
                (self._ranks.get((left, right), sys.maxsize), i)
                for i, (left, right) in enumerate(itertools.pairwise(parts))
            ]
            rank, at = min(ranked)
            if rank == sys.maxsize:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return len(parts)


class LazyTextTokens:
    """The same, read from the file when it is first asked for."""

    def __init__(self, talker: Path) -> None:
        self._talker = talker
        self._lock = threading.Lock()
        self._tokens: TextTokens | None = None

    def count(self, text: str) -> int:
        with self._lock:
            if self._tokens is None:
                self._tokens = TextTokens.from_talker(self._talker)
            tokens = self._tokens
        return tokens.count(text)
