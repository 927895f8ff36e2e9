"""Which part of a text a voice of the Latin alphabet can speak.

The small voices know one script. Asked for another one they answer with silence or nonsense, so
words of other scripts are taken out beforehand and reported.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import NamedTuple

_LAST_KNOWN_LETTER = 0x17F
"""Latin-1 and Latin Extended-A are read as they are; later letters lose their marks."""
_LOOSE_BLANKS = re.compile(r" {2,}")
_EMPTY_BRACKETS = re.compile(r"\( ?\)")


class LatinText(NamedTuple):
    spoken: str
    skipped: str
    """Words of other scripts, in order, joined by blanks; empty when there are none."""


def latin_part(text: str) -> LatinText:
    """Split `text` (from `plain_text`). A single Greek letter is spoken by its name."""
    if text.isascii():
        return LatinText(text, "")
    spoken: list[str] = []
    skipped: list[str] = []
    for word in re.split(r"([^\S\n]+|\n+)", text):
        if word.isascii():
            spoken.append(word)
            continue
        own, foreign = _split_word(word)
        spoken.append(own)
        if foreign:
            skipped.append(foreign)
    joined = _EMPTY_BRACKETS.sub(" ", "".join(spoken))
    return LatinText(_LOOSE_BLANKS.sub(" ", joined).strip(), " ".join(skipped))


def _split_word(word: str) -> tuple[str, str]:
    own: list[str] = []
    foreign: list[str] = []
    for index, char in enumerate(word):
        letters = _latin_form(char)
        if letters is None and _is_alone(word, index) and (name := _greek_name(char)):
            letters = f" {name} "
        if letters is None:
            foreign.append(char)
            # A blank, so that "日本2024年3月" keeps two numbers and not one.
            own.append(" ")
        else:
            own.append(letters)
    return "".join(own), "".join(foreign)


@functools.lru_cache(maxsize=8192)
def _latin_form(char: str) -> str | None:
    """`char` as a Latin voice reads it; None when it is of another script."""
    category = unicodedata.category(char)
    if char.isascii() or category[0] in "NPSZ":
        return char
    if category[0] == "M":
        # Marks composed by NFC are gone by now; what is left belongs to no letter we know ...
        return None if "COMBINING" not in unicodedata.name(char, "") else ""
    if "LATIN" not in unicodedata.name(char, "") and char not in "µªº":
        return None
    if ord(char) <= _LAST_KNOWN_LETTER:
        return char
    bare = "".join(c for c in unicodedata.normalize("NFD", char) if not unicodedata.combining(c))
    return bare or None


def _greek_name(char: str) -> str:
    parts = unicodedata.name(char, "").split()
    plain = len(parts) == 4 and parts[0] == "GREEK" and parts[2] == "LETTER"
    return parts[3].lower().replace("lamda", "lambda") if plain else ""


def _is_alone(word: str, index: int) -> bool:
    """No other letter of a foreign script beside it: the pi of 2πr, not the one of πρώτα."""
    beside = word[max(0, index - 1) : index] + word[index + 1 : index + 2]
    return not any(char.isalpha() and not char.isascii() for char in beside)
