"""Plain text -> what the English voice reads well: addresses, digits, money, long words, marks.

Times, dates, units, most money and all ordinary numbers are read by the voice itself; here is what
it gets wrong, loses, or cannot take at all.
"""

from __future__ import annotations

import re
import unicodedata

from phonate.engine.builtin.addresses import spell_addresses, spell_dots
from phonate.engine.builtin.long_runs import break_long_runs

SIGNS = {
    ".": "dot",
    "/": "slash",
    "-": "dash",
    "_": "underscore",
    "@": "at",
    ":": "colon",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    "%": "percent",
    "+": "plus",
    "~": "tilde",
    ",": "comma",
}
_MARKS = {
    **SIGNS,
    "!": "exclamation mark",
    ";": "semicolon",
    "-": "dash",
    "–": "dash",
    "—": "dash",
    "…": "dot dot dot",
    '"': "quote",
    "'": "apostrophe",
    "*": "asterisk",
    "$": "dollar",
    "€": "euro",
    "£": "pound",
    "\\": "backslash",
    "|": "bar",
    "<": "less than",
    ">": "greater than",
    "^": "caret",
}
MAX_NAMED_MARKS = 3

_AMOUNT = r"(?<![\w.,$£€])(\d{1,15}(?:[.,]\d{1,3})*)"
_CURRENCY_AFTER = re.compile(rf"{_AMOUNT}(?:([€£$])(?!\d)| ([€£$])(?! ?\d))")
_CURRENCY_APART = re.compile(r"([$£€]) (?=\d)")
_CURRENCY_ALONE = re.compile(r"([$£€])(?!\d)")
_CURRENCY_NAMES = {"$": "dollars", "£": "pounds", "€": "euros"}
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d{1,3}(?:\.\d{3})*),(\d\d)(?![\d,])")
_NEGATIVE_MONEY = re.compile(r"(?<!\w)-\s?([$£€])(?=\d)|([$£€])-(?=\d)")
_COUNTRY_DOLLAR = re.compile(r"\b(?:US|CA|AU|NZ|[AC])\$(?=\d)")
_LEADING_ZEROS = re.compile(r"(?<![\d.,:/$£€-])0\d{1,14}(?![\d:/%]|[.,-]\d)")
_LIST_COMMA = re.compile(r"(?<=\d),(?=\d)(?!\d{3}(?!\d))")
_TIMES = re.compile(r"(?<=\d) ?[*×] ?(?=\d)")
_BLANKS = re.compile(r"[^\S\n]+")
_BLANK_BEFORE_MARK = re.compile(r" ([.,;:!?](?:\s|$))")


def spoken_english(text: str) -> str:
    """Same meaning, words instead of what the voice cannot read. Linear in the text."""
    text = spell_addresses(text, SIGNS)
    text = _money(text)
    text = spell_dots(text, SIGNS)
    text = _TIMES.sub(" times ", text)
    text = text.replace("*", " ").replace("\\", " ").replace("_", " ")
    text = _LIST_COMMA.sub(", ", text)
    text = _LEADING_ZEROS.sub(lambda match: " ".join(match.group()), text)
    text = break_long_runs(text)
    return _BLANK_BEFORE_MARK.sub(r"\1", _BLANKS.sub(" ", text)).strip()


def name_marks(text: str) -> str:
    """ "." -> "dot": what a text without a single word is read as. "" when nothing has a name."""
    names = [name for char in text if (name := _name(char))]
    return " ".join(names[:MAX_NAMED_MARKS])


def _name(char: str) -> str:
    if char in _MARKS:
        return _MARKS[char]
    if unicodedata.category(char)[0] == "P" or unicodedata.category(char) in ("Sm", "Sc"):
        return unicodedata.name(char, "").lower().replace("-", " ")
    return ""


def _money(text: str) -> str:
    text = _DECIMAL_COMMA.sub(lambda m: f"{m.group(1).replace('.', '')}.{m.group(2)}", text)
    text = _COUNTRY_DOLLAR.sub("$", text)
    text = _NEGATIVE_MONEY.sub(lambda match: f"minus {match.group(1) or match.group(2)}", text)

    text = _CURRENCY_AFTER.sub(lambda m: f"{m.group(2) or m.group(3)}{m.group(1)}", text)
    text = _CURRENCY_APART.sub(r"\1", text)
    return _CURRENCY_ALONE.sub(lambda m: f" {_CURRENCY_NAMES[m.group(1)]} ", text)
