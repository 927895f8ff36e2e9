"""Text in pieces of any size in, fragments to speak out; nothing lost, nothing spoken twice.

    >>> splitter = Splitter()
    >>> [f.text for f in splitter.feed("Good morning, Dr. Smith. It is 9:30 a.m. n")]
    ['Good morning, ', 'Dr. Smith. ']
    >>> [f.text for f in splitter.feed("ow!") + splitter.finish()]
    ['It is 9:30 a.m. now!']

The fragments joined are the text, and they do not depend on how it was cut into pieces: the
splitter decides after every character, never after every piece. Only `flush` changes that.

What is from `stream2sentence`: its boundary detector, which knows abbreviations, initialisms,
decimals, URLs, times and names in some twenty languages and says split, reject, or wait. What is
not: its generators. They pull from an iterator instead of being fed, trim the white space between
fragments, hold a sentence back for 12 to 24 more characters, and have no flush. Around the
detector there is also a cheap gate (a mark counts only before white space or a closing quote) and
a bounded window, so that "1." x 50,000 costs a scan and not 50,000 questions.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from stream2sentence.quick_yield_boundary import HOLD, SPLIT, QuickYieldBoundaryDetector

MIN_CHARS = 10
"""A fragment that ends by itself has at least this many characters, white space around it aside."""

DEFAULT_MAX_CHARS = 400
"""Some 25 s of speech: long enough for any sentence one would read in a breath or three."""

_LOOK_BEHIND = 120
_LOOK_AHEAD = 48
"""Characters shown to the detector on either side of a mark. Its longest rules (legal citations,
weekday and date) look a few words each way; without a bound every question would copy the text."""

_MAX_QUESTIONS = 16
"""Per fragment. Prose asks once or twice; 1. 2. 3. without end would ask at every number."""

_ENDS = ".!?\N{ARABIC FULL STOP}"
_ENDS_AT_ONCE = "。！？｡…।॥؟։።။។"
_CLOSERS = "\"')]}”’»›」』）】〕》〉"
_CJK_CLOSERS = "」』）】〕》〉”’»›"
_OPENERS = "「『（【〔《〈“‘«‹"
_CLAUSE_BEFORE_SPACE = ",;:–-"
_CLAUSE_AT_ONCE = "，、；：،؛—\n\u2028\u2029"
_INTERESTING = re.compile(
    "[" + re.escape(_ENDS + _ENDS_AT_ONCE + _CLAUSE_BEFORE_SPACE + _CLAUSE_AT_ONCE) + "]"
)

_ORDINALS = frozenset({"de"})
"""Languages that write ordinals as "3.": there a number with a dot never ends a sentence."""

_CODES = {
    "chinese": "zh", "english": "en", "japanese": "ja", "korean": "ko", "german": "de",
    "french": "fr", "russian": "ru", "portuguese": "pt", "spanish": "es", "italian": "it",
}  # fmt: skip


Clauses: TypeAlias = Literal["first", "always", "never"]
"""Which fragments settle for a clause: only the first one (it is waited for), all, none."""


class End(str, Enum):
    """What ended a fragment."""

    SENTENCE = "sentence"
    CLAUSE = "clause"
    PARAGRAPH = "paragraph"
    FLUSH = "flush"
    LENGTH = "length"
    END = "end"


@dataclass(frozen=True, slots=True)
class Fragment:
    """A stretch of the text, exact with its white space. `index` counts from 0 in a splitter."""

    text: str
    index: int
    ended: End

    @property
    def spoken(self) -> bool:
        """Whether there is a letter or a digit of any script in it, so something to say."""
        return is_spoken(self.text)

    @property
    def speech(self) -> str:
        """What an engine gets: no white space around, no closing marks of the sentence before."""
        return self.text.strip().lstrip(_STRAY).lstrip() if self.spoken else ""

    @property
    def closes(self) -> End | None:
        """SENTENCE, CLAUSE or None: which pause belongs after it. A flushed or last fragment
        is judged by its own last mark."""
        if self.ended in (End.SENTENCE, End.PARAGRAPH):
            return End.SENTENCE
        if self.ended is End.CLAUSE:
            return End.CLAUSE
        tail = self.text.rstrip().rstrip(_CLOSERS)[-1:]
        if tail and tail in _ENDS + _ENDS_AT_ONCE:
            return End.SENTENCE
        if tail and tail in _CLAUSE_BEFORE_SPACE + _CLAUSE_AT_ONCE:
            return End.CLAUSE
        return None


_STRAY = "!?" + _ENDS_AT_ONCE + "，、；：،؛)]}”’»›」』）】〕》〉"
"""Marks that can only belong to what came before; 。」 is cut after 。 when nobody opened a 「."""


def is_spoken(text: str) -> bool:
    """True when `text` has a letter or digit in any script: "." and emoji alone have none."""
    return any(c.isalnum() for c in text)


class _Detector(QuickYieldBoundaryDetector):  # type: ignore[misc]
    """The library's, which goes through its two hundred abbreviations at every mark. Nearly all
    marks are ruled out by the last three characters: a quarter of the time, the same answers."""

    def __init__(self, language: str) -> None:
        super().__init__(language, language in _ORDINALS)
        self._tails = frozenset(abbreviation[-3:] for abbreviation in self.abbreviations)

    def _matching_abbreviation(self, text: str) -> str | None:
        tail = text[-3:].casefold()
        if tail[-3:] not in self._tails and tail[-2:] not in self._tails:
            return None
        found: str | None = super()._matching_abbreviation(text)
        return found


@functools.cache
def _detector(language: str) -> _Detector:
    return _Detector(language)


class Splitter:
    """feed() text, get the fragments that became certain; flush() for what is held; finish() once.

    language: canonical name, or None (English rules, which include the common abbreviations).
    lookahead_words: how many words the first fragment waits for a sentence end before it settles
    for a clause; `clauses` extends that to all fragments, or to none.
    max_chars: no fragment is longer; at least 2 * MIN_CHARS.
    """

    def __init__(
        self,
        *,
        language: str | None = None,
        lookahead_words: int = 0,
        max_chars: int = DEFAULT_MAX_CHARS,
        clauses: Clauses = "first",
    ) -> None:
        code = _CODES.get(language or "english", "en")
        self._detector = _detector(code)
        self._lookahead = lookahead_words
        self._max = max(max_chars, 2 * MIN_CHARS)
        self._clauses = clauses
        self._index = 0
        self._text = ""
        self._finished = False
        self._restart(first=True)

    @property
    def held(self) -> str:
        """The text that is not yet part of a fragment."""
        return self._text

    def feed(self, text: str) -> list[Fragment]:
        """Add text; the fragments that are certain now, oldest first."""
        if self._finished:
            raise RuntimeError("feed() after finish()")
        out: list[Fragment] = []
        # In steps, so that `_text` stays short and cutting a fragment off it stays cheap.
        for at in range(0, len(text), self._max):
            self._text += text[at : at + self._max]
            while (cut := self._scan()) is not None:
                out.append(self._take(*cut))
        return out

    def flush(self) -> list[Fragment]:
        """Give out what is held now. White space alone stays and joins what comes next."""
        if not self._text.strip():
            self._restart(first=True)
            return []
        return [self._rest(End.FLUSH)]

    def finish(self) -> list[Fragment]:
        """The rest, white space included. The splitter is done afterwards."""
        self._finished = True
        return [self._rest(End.END)] if self._text else []

    def _restart(self, *, first: bool) -> None:
        """Begin an open fragment at `_text[0]`. Offsets below are into `_text`, -1 means none."""
        self._first = first
        self._pos = 0  # scanned up to here
        self._mark = -1  # a sentence mark under consideration
        self._body = -1  # the white space behind that mark's run and closing quotes
        self._clause = -1  # where the last clause ended
        self._settle = -1  # where the first fragment ends unless a sentence end comes in time
        self._words = 0  # since `_settle`
        self._questions = 0  # asked of the detector
        self._probed = 0  # looked at by _long_enough up to here
        self._lead = -1  # the first visible character
        self._last = 0  # behind the last visible one
        self._audible = False  # a letter or digit was seen

    def _take(self, end: int, ended: End) -> Fragment:
        fragment = Fragment(self._text[:end], self._index, ended)
        self._index += 1
        self._text = self._text[end:]
        self._restart(first=self._first and not fragment.spoken)
        return fragment

    def _rest(self, ended: End) -> Fragment:
        fragment = self._take(len(self._text), ended)
        self._restart(first=True)
        return fragment

    def _scan(self) -> tuple[int, End] | None:
        """Look at the characters not yet seen; the first cut they make certain, or None."""
        text = self._text
        while self._pos < len(text):
            if self._pos >= self._max:
                return self._cut_for_length()
            pending = self._mark >= 0 or self._settle >= 0
            if not pending and (self._pos == 0 or text[self._pos - 1] not in _CLAUSE_BEFORE_SPACE):
                found = _INTERESTING.search(text, self._pos, self._max)
                if found is None:
                    self._pos = min(len(text), self._max)
                    continue
                self._pos = found.start()
            pos = self._pos
            self._pos += 1
            cut = self._step(pos, text[pos])
            if cut is not None:
                return cut
        return None

    def _step(self, pos: int, char: str) -> tuple[int, End] | None:
        if self._mark >= 0:
            cut = self._weigh(pos, char)
            if cut is not None:
                return cut
        if self._mark < 0 and char in _ENDS:
            self._mark, self._body = pos, -1
        elif char in _ENDS_AT_ONCE and self._long_enough(pos + 1):
            if not self._quote_is_open(pos):
                return pos + 1, End.SENTENCE
            self._mark, self._body = pos, -1
        elif self._ends_clause(pos, char):
            cut = self._note_clause(pos, char)
            if cut is not None:
                return cut
        return self._settle_down(pos, char)

    def _weigh(self, pos: int, char: str) -> tuple[int, End] | None:
        """One more character after a sentence mark: is it the end of a sentence?"""
        text = self._text
        if self._body < 0:
            if char in _ENDS + _ENDS_AT_ONCE or char in _CLOSERS:
                return None
            if text[self._mark] in _ENDS_AT_ONCE:
                return pos, End.SENTENCE
            self._body = pos
            if not char.isspace() or not self._long_enough(pos):
                self._mark = -1
                return None
        elif pos - self._body > _LOOK_AHEAD or char in _ENDS:
            self._mark = -1
            return None
        elif not char.isspace() and not text[pos - 1].isspace():
            return None
        verdict = self._ask(pos)
        if verdict == HOLD:
            return None
        if verdict == SPLIT:
            end = self._body
            while end <= pos and text[end].isspace():
                end += 1
            return end, End.PARAGRAPH if text.count("\n", self._body, end) > 1 else End.SENTENCE
        self._mark = -1
        return None

    def _ask(self, pos: int) -> str:
        """The detector's word on the open mark, with the text up to and including `pos`."""
        self._questions += 1
        if self._questions > _MAX_QUESTIONS:
            return "reject"
        text, run_end = self._text, self._mark
        while text[run_end + 1] in _ENDS:
            run_end += 1
        begin = max(0, self._mark - _LOOK_BEHIND)
        # A quoted or trailing-off end ("Really?" she said; well... maybe) shows only by the next
        # word's first letter; any other mark before white space is as certain as it will get.
        wait = text[self._body - 1] in _CLOSERS or text.count(".", self._mark, run_end + 1) > 1
        verdict: str = self._detector.classify(
            text[begin : pos + 1], run_end - begin, text[run_end + 1], allow_terminal_end=not wait
        )
        return verdict

    def _quote_is_open(self, pos: int) -> bool:
        """Inside 「...: the closing mark behind 。 belongs to this fragment, so wait for it."""
        depth = 0
        for c in self._text[:pos]:
            depth += (c in _OPENERS) - (depth > 0 and c in _CJK_CLOSERS)
        return depth > 0

    def _ends_clause(self, pos: int, char: str) -> bool:
        before = self._text[pos - 1] if pos else ""
        if char in _CLAUSE_AT_ONCE:
            return not (before.isdigit() and char in "，：、،")
        if not char.isspace() or not before or before not in _CLAUSE_BEFORE_SPACE:
            return False
        two = self._text[pos - 2] if pos > 1 else ""
        if before in "-–":
            return two.isspace() or two == before
        return two not in _ENDS

    def _note_clause(self, pos: int, char: str) -> tuple[int, End] | None:
        end = pos + 1
        if not self._long_enough(end):
            return None
        if char == "\n" and self._text[:pos].rstrip(" \t\r").endswith("\n"):
            return end, End.PARAGRAPH
        self._clause = end
        eager = self._clauses == "always" or (self._first and self._clauses == "first")
        if not eager or self._settle >= 0:
            return None
        if self._lookahead == 0:
            return end, End.CLAUSE
        self._settle, self._words = end, 0
        return None

    def _settle_down(self, pos: int, char: str) -> tuple[int, End] | None:
        """Count the words since the clause; enough of them, and the clause it is."""
        if self._settle < 0 or pos < self._settle:
            return None
        before = self._text[pos - 1] if pos > self._settle else " "
        if _is_wide(char) or (char.isspace() and not before.isspace() and not _is_wide(before)):
            self._words += 1
        if self._words < self._lookahead or self._mark >= 0:
            return None
        return self._settle, End.CLAUSE

    def _long_enough(self, end: int) -> bool:
        """MIN_CHARS from the first to the last visible character, and something to say. Goes on
        from where it was asked last, so all questions about a fragment together cost one pass."""
        while self._probed < end and not self._is_long():
            char = self._text[self._probed]
            self._probed += 1
            if not char.isspace():
                self._lead = self._lead if self._lead >= 0 else self._probed - 1
                self._last = self._probed
                self._audible = self._audible or char.isalnum()
        return self._is_long()

    def _is_long(self) -> bool:
        return self._audible and self._last - self._lead >= MIN_CHARS

    def _cut_for_length(self) -> tuple[int, End]:
        """Too long without an end: at a sentence or clause, else between words, else anywhere."""
        text, limit, least = self._text, self._max, max(MIN_CHARS, self._max // 3)
        if self._mark >= 0 and self._body >= least:
            return self._body, End.SENTENCE
        if self._clause >= least:
            return self._clause, End.CLAUSE
        for end in range(limit, least, -1):
            if text[end - 1].isspace() and not text[end].isspace():
                return end, End.LENGTH
        for end in range(limit, max(least, limit - 32), -1):
            if not _clings(text, end):
                return end, End.LENGTH
        return limit, End.LENGTH


def _is_wide(char: str) -> bool:
    """Scripts without spaces: every character counts as a word."""
    return (
        "\u2e80" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7af" or "\u0e00" <= char <= "\u0eff"
    )


def _clings(text: str, at: int) -> bool:
    """True when a cut before `text[at]` breaks a grapheme: marks, joined emoji, flags, CR LF."""
    before, after = text[at - 1], text[at]
    if "\u200d" in (before, after) or (before, after) == ("\r", "\n"):
        return True
    if _is_flag_half(after):
        halves = 0
        while halves < at and _is_flag_half(text[at - 1 - halves]):
            halves += 1
        return halves % 2 == 1
    return (
        unicodedata.category(after) in ("Mn", "Mc", "Me") or "\U0001f3fb" <= after <= "\U0001f3ff"
    )


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def split(
    text: str, *, max_chars: int = DEFAULT_MAX_CHARS, language: str | None = None
) -> list[Fragment]:
    """A whole text into as few fragments as `max_chars` allows, ended at sentences.

    A paragraph always ends a fragment. Joined, they equal `text`. White space is with the
    fragment before it; `ended` of the last one is END.
    """
    if len(text) <= max_chars and text.count("\n") < 2:  # Whatever it holds would join again.
        return [Fragment(text, 0, End.END)] if text else []
    splitter = Splitter(language=language, max_chars=max_chars, clauses="never")
    groups: list[tuple[str, End]] = []
    for piece in splitter.feed(text) + splitter.finish():
        lead = piece.text[: len(piece.text) - len(piece.text.lstrip())]
        body = piece.text[len(lead) :]
        if groups and lead:
            before, ended = groups[-1]
            before += lead
            groups[-1] = (before, _paragraph_or(ended, before))
        elif lead:
            body = piece.text
        if not body:
            continue
        last = groups[-1] if groups else None
        joinable = last is not None and last[1] is not End.PARAGRAPH
        if last is not None and joinable and len(last[0] + body.rstrip()) <= max_chars:
            groups[-1] = (last[0] + body, _paragraph_or(piece.ended, body))
        else:
            groups.append((body, _paragraph_or(piece.ended, body)))
    if groups:
        groups[-1] = (groups[-1][0], End.END)
    return [Fragment(body, index, ended) for index, (body, ended) in enumerate(groups)]


def _paragraph_or(ended: End, text: str) -> End:
    tail = text[len(text.rstrip()) :]
    return End.PARAGRAPH if tail.count("\n") > 1 else ended
