"""Five plain voices of Pico (py-nanotts, optional): german, french, spanish, italian, british.

Robotic, small, some fifty times faster than real time. What the runtime does badly is kept out:

- it takes orders from the text (`<play file=...>`): no angle bracket reaches it;
- it stops at a NUL and raises on a lone surrogate: both are gone after `plain_text`;
- other scripts give silence without an error: refused by the engine before;
- it hangs, cannot be stopped, and reads memory it never wrote: see `pico_process`.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import unicodedata
from collections.abc import Iterator

import numpy as np
import soxr

from phonate.engine.base import CancelToken, Samples, Speaker
from phonate.engine.builtin.addresses import spell_addresses
from phonate.engine.builtin.long_runs import break_long_runs
from phonate.engine.builtin.pico_process import PicoProcess
from phonate.engine.builtin.pico_words import ANY_MARK, SIGN_WORDS
from phonate.engine.builtin.pieces import Piece
from phonate.engine.builtin.small_voice import SAMPLE_RATE, Spoken

PICO_RATE = 16_000
GAIN = 0.5
"""Brings Pico, at half volume, to the English voice's loudness: an RMS of 0.06 in its speech."""
MAX_NAMED_MARKS = 3

_VOICES = (
    (Speaker("pico-de", "Pico Deutsch", "german"), "de-DE"),
    (Speaker("pico-fr", "Pico Français", "french"), "fr-FR"),
    (Speaker("pico-es", "Pico Español", "spanish"), "es-ES"),
    (Speaker("pico-it", "Pico Italiano", "italian"), "it-IT"),
    (Speaker("pico-gb", "Pico British", "english"), "en-GB"),
)
_REPLACED = {
    "<": " ",
    ">": " ",
    "*": " ",
    "\\": " ",
    "_": " ",
    "|": ", ",
    "–": ", ",
    "—": ", ",
    "œ": "oe",
    "Œ": "Oe",
    "ı": "i",
    "ł": "l",
    "Ł": "L",
    "đ": "d",
    "Đ": "D",
    "™": " ",
    "®": " ",
}


def pico_voices() -> list[PicoVoice]:
    """All five, sharing one process; none where py-nanotts is not installed."""
    if importlib.util.find_spec("py_nanotts") is None:
        return []
    worker = PicoProcess()
    return [PicoVoice(speaker, code, worker) for speaker, code in _VOICES]


class PicoVoice:
    """One voice. `rng` of `render` is not used: Pico has nothing random."""

    def __init__(self, speaker: Speaker, code: str, process: PicoProcess) -> None:
        self.speaker = speaker
        self._code = code
        self._process = process
        self._signs = SIGN_WORDS[speaker.language or "english"]
        self._other_mark = ANY_MARK[speaker.language or "english"]

    def wording(self, text: str) -> str:
        text = spell_addresses(text, self._signs)
        return break_long_runs("".join(map(_known_form, text)))

    def name_marks(self, text: str) -> str:
        names = filter(None, map(self._mark_name, text))
        return " ".join(itertools.islice(names, MAX_NAMED_MARKS))

    def _mark_name(self, mark: str) -> str:
        category = unicodedata.category(mark)
        if mark in self._signs:
            return self._signs[mark]
        if category == "Sc":
            return mark if mark in "$€£" else ""  # Pico has words for these
        return self._other_mark if category[0] == "P" or category == "Sm" else ""

    def render(
        self, piece: Piece, rng: np.random.Generator, token: CancelToken, skipped: list[str]
    ) -> Iterator[Spoken]:
        pcm = self._process.speak(piece.text, self._code, token)
        if pcm:
            yield Spoken(_as_float(pcm), piece.end, len(piece.text))

    def close(self) -> None:
        self._process.close()


@functools.lru_cache(maxsize=2048)
def _known_form(char: str) -> str:
    """Latin-1 is what all five voices know; other letters lose their marks, other signs go."""
    if char in _REPLACED:
        return _REPLACED[char]
    if ord(char) < 0x100 or char == "€":
        return char
    bare = unicodedata.normalize("NFKD", char).encode("latin-1", "ignore").decode("latin-1")
    return bare or " "


def _as_float(pcm: bytes) -> Samples:
    samples = np.frombuffer(pcm, dtype="<i2").astype(np.float32) * np.float32(GAIN / 32768)
    return np.asarray(soxr.resample(samples, PICO_RATE, SAMPLE_RATE), dtype=np.float32)
