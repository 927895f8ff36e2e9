"""Text -> pieces that a voice speaks in one go, each with the pause that follows it.

Sentences stay whole while they fit; longer ones are cut after a clause, else between words, else
anywhere. Nothing is dropped but blanks at the cuts. Linear in the text.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import NamedTuple


class Break(Enum):
    """What ends a piece; the value is the pause after it, in seconds of silence to hear.

    The voice itself leaves 0.75 s between two sentences, which drags; read speech has 0.3 to 0.6.
    """

    PARAGRAPH = 0.70
    SENTENCE = 0.42
    CLAUSE = 0.20
    WORD = 0.05
    END = 0.15


class Piece(NamedTuple):
    text: str
    end: Break


_SENTENCE_END = re.compile(r"([.!?…]+)[\"'”’)]{0,8}\s+(?=\S)")
_CLAUSE_END = re.compile(r"(?:[;:—–]|,[\"'”’)]?) ")
_SHORT_FORMS = (
    "mr mrs ms dr prof st sr jr mt ft rev hon gen gov capt lt col sgt no nos vol fig vs ch pp"
    " ed approx dept univ inc co corp ltd bros"
    " hr fr bzw ca nr str usw z.b d.h u.a m mme mlle sig sra srta ud uds dott avv ing"
)
_ABBREVIATIONS = frozenset(_SHORT_FORMS.split(" "))
"""Words whose full stop ends no sentence when a capital follows."""


def cut(text: str, limit: int) -> list[Piece]:
    """Pieces of at most `limit` characters; a line break ends one, a blank line with a longer
    pause. Empty for a text without a visible character."""
    pieces: list[Piece] = []
    for paragraph in re.split(r"\n\n+", text):
        for line in paragraph.split("\n"):
            for sentence in _sentences(line):
                pieces.extend(fit(sentence, limit))
        if pieces:
            pieces[-1] = pieces[-1]._replace(end=Break.PARAGRAPH)
    if pieces:
        pieces[-1] = pieces[-1]._replace(end=Break.END)
    return pieces


def _sentences(line: str) -> list[str]:
    out: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(line):
        if _ends_sentence(line, match):
            out.append(line[start : match.end()].strip())
            start = match.end()
    out.append(line[start:].strip())
    return [sentence for sentence in out if sentence]


def _ends_sentence(line: str, match: re.Match[str]) -> bool:
    if line[match.end()].islower():
        return False
    if match.group(1) != ".":
        return True
    # 24 characters hold every abbreviation; looking further back would make this quadratic.
    before = line[max(0, match.start() - 24) : match.start()].split()
    word = before[-1].lstrip("(\"'“‘") if before else ""
    return not (word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper()))


def fit(sentence: str, limit: int) -> list[Piece]:
    """One sentence in pieces of about equal length, so that the last is no single word. Serves
    phoneme strings too, which have the same marks and blanks."""
    out: list[Piece] = []
    while len(sentence) > limit:
        parts = math.ceil(len(sentence) / limit)
        aim = math.ceil(len(sentence) / parts)
        at, end = _cut_near(sentence, aim, limit)
        out.append(Piece(sentence[:at].strip(), end))
        sentence = sentence[at:].strip()
    if sentence:
        out.append(Piece(sentence, Break.SENTENCE))
    return [piece for piece in out if piece.text]


def _cut_near(sentence: str, aim: int, limit: int) -> tuple[int, Break]:
    """Where to cut, at most `limit`: the clause end nearest to `aim`, else the blank before it."""
    window = sentence[: limit + 1]
    clauses = [match.end() for match in _CLAUSE_END.finditer(window) if match.end() > aim // 3]
    if clauses:
        return min(clauses, key=lambda at: abs(at - aim)), Break.CLAUSE
    blank = window.find(" ", aim)
    if blank < 0:
        blank = window.rfind(" ", 1)
    if blank > 0:
        return blank, Break.WORD
    return limit, Break.WORD
