"""How long a text may take at most, for models that can miss their own end.

An estimate of the speech, times a margin, plus a little: generous for slow readers, and still
seconds instead of the minutes that an engine's own bound would allow. What is cut by it is told
(finish_reason "length").
"""

from __future__ import annotations

import math
import unicodedata

_MARGIN = 2.5
_EXTRA_S = 1.0

_SECONDS = {
    "ideograph": 0.30,  # 200 to 250 a minute when read aloud
    "syllable": 0.20,  # kana, hangul
    "digit": 0.40,  # "7" is a word
    "letter": 0.075,  # 15 characters a second, spaces and all
    "mark": 0.15,  # a pause, or a word where it is read out
}


def estimate_s(text: str) -> float:
    """About how many seconds `text` takes when it is read aloud."""
    return sum(_SECONDS[kind] for char in text if (kind := _kind(char)))


def token_budget(text: str, frame_rate: float) -> int:
    """Codec frames within which `text` must be said.

    >>> token_budget("Huh?", 12.5) / 12.5 < 3
    True
    """
    return math.ceil((_EXTRA_S + _MARGIN * estimate_s(text)) * frame_rate)


def _kind(char: str) -> str:
    if char.isdigit():
        return "digit"
    if char.isspace():
        return "letter"
    if char.isalpha():
        name = unicodedata.name(char, "")
        if name.startswith("CJK"):
            return "ideograph"
        if name.startswith(("HIRAGANA", "KATAKANA", "HANGUL")):
            return "syllable"
        return "letter"
    return "mark" if unicodedata.category(char)[0] in "PS" else ""
