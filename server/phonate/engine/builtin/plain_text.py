"""Text as it arrives -> text a voice may see: no markup, no control characters, nothing obeyed.

A small voice reads out what it gets: tags, colour codes, asterisks. Some of it, it obeys: hibari
takes `[x](/phonemes/)` as an order, Pico `<play file=...>`. So everything that is not meant for a
listener goes first. Language does not matter here; a voice's own reading of numbers, addresses
and symbols comes later. Every step is linear in the text: the patterns have bounded repeats.
"""

from __future__ import annotations

import functools
import html
import re
import unicodedata

_ANSI = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor
    r"|\x9b[0-?]{0,64}[ -/]{0,8}[@-~]"  # the same in one byte
    r"|\x1b\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)"  # window titles, links
    r"|\x1b[@-_]?"
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9A-Fa-f]{1,6}|[A-Za-z]{2,31});")
_SPECIAL_TOKEN = re.compile(r"<[|｜][^<>\n]{0,80}[|｜]>|\[/?INST\]|<</?SYS>>")
_DECLARATION = re.compile(r"<[!?][A-Za-z\[][^<>]{0,1000}>")
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]{0,40})(\s[^<>]{0,1000}|)(/?)>")
_CLOSER = re.compile(r"</([A-Za-z][\w:.-]{0,40})\s{0,8}>")
_CUE = re.compile(
    r"\[/?(?:pause|break|silence|wait|breath|breathe|laugh|sigh|cough|gasp|music|emphasis|whisper)"
    r"(?:s|es|ing|ter)?\b[^\[\]\n]{0,40}\]",
    re.IGNORECASE,
)
_LINK = re.compile(r"!?\[([^\[\]]{0,1000})\]\([^()\n]{0,2000}\)")
_TAG_NAMES = (
    # SSML
    "speak p s break emphasis prosody say-as sub voice audio phoneme lang mark desc token w lexicon"
    # HTML
    " a b i u q em strong span div br hr h1 h2 h3 h4 h5 h6 ul ol li img code pre kbd table tr td th"
    " html body head title style script sup small big font center del ins blockquote"
    # what language models wrap their words in
    " think unk pad bos eos"
)
_KNOWN_TAGS = frozenset(_TAG_NAMES.split(" "))

_LINE_START = re.compile(
    r"^[ \t]{0,8}(?:(?:#{1,6}|>|[-*+•])[ \t]+)+|^[ \t]{0,8}(?=\d{1,3}[.)][ \t])", re.MULTILINE
)
_ITEM = "\v"
"""Put before a line that is an item of a list or a heading: never the rest of the line before.
Cannot come from outside: control characters are gone by then."""
_BACKTICK = re.compile(r"(?<=\w)`(?=\w)|(`)")
_RULE_LINE = re.compile(r"^[ \t|:]*(?:[-=_*~#+.|:][ \t]?){3,}[ \t]*$", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]{0,8}(?:```|~~~)[^\n]{0,40}$", re.MULTILINE)
_LONG_RUN = re.compile(r"([^\w\s])\1{2,}")
_SENTENCE_MARKS = ".!?,;:"
_DECORATION = "-=_*~#+|/\\<>^`'\"•·–—"
_SPACES = re.compile(r"[ \t]+")

_LINE_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_KEPT = frozenset("½¼¾²³¹µªº°™®©ßſ")
"""Characters that a voice reads better than their compatibility form (²: squared, not 2)."""
_REPLACED = {
    **dict.fromkeys("“”„‟«»″〝〞「」『』《》【】", '"'),
    **dict.fromkeys("‘’‚‛ʼ′´", "'"),
    **dict.fromkeys("‐‑‒−﹣－", "-"),
    "―": "—",
    "。": ". ",
    "．": ".",
    "！": "! ",
    "？": "? ",
    "，": ", ",
    "、": ", ",
    "；": "; ",
    "：": ": ",
    "،": ", ",
    "؛": "; ",
    "؟": "? ",
    "।": ". ",
    "…": "... ",
    "\u2044": "/",
}


def plain_text(text: str) -> str:
    """What is left for a listener, letters of every script included. Lines that belong together
    are joined; paragraphs stay apart by "\\n\\n", other lines by "\\n". Never raises."""
    text = _ENTITY.sub(lambda match: html.unescape(match.group()), text)
    text = _ANSI.sub("", text.replace("\r\n", "\n"))
    text = unicodedata.normalize("NFC", "".join(map(_plain_char, text)))
    text = _without_tags(text)
    text = _without_markdown(text)
    return _joined_lines(text)


def has_words(text: str) -> bool:
    """Is there a letter or a digit of any script? False for blanks, marks, emoji, bare tags."""
    return any(char.isalnum() for char in plain_text(text))


@functools.lru_cache(maxsize=8192)
def _plain_char(char: str) -> str:
    """One character -> none, itself, a blank, or what it stands for."""
    if char in _LINE_BREAKS:
        return "\n"
    if " " <= char <= "~":
        return char
    if char in _REPLACED:
        return _REPLACED[char]
    if char.isspace():
        return " "
    category = unicodedata.category(char)
    if category[0] == "C" or category == "Me" or "VARIATION SELECTOR" in unicodedata.name(char, ""):
        return ""
    if char in _KEPT:
        return char
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category in ("So", "Sk"):
        compatible = unicodedata.normalize("NFKC", char)
        return compatible if compatible.isascii() and compatible.isalnum() else " "
    if category[0] in "LN" or char in "｜":
        return unicodedata.normalize("NFKC", char)
    return char


def _without_tags(text: str) -> str:
    text = _SPECIAL_TOKEN.sub(" ", _DECLARATION.sub(" ", _without_comments(text)))
    closed = {match.group(1).lower() for match in _CLOSER.finditer(text)}

    def replace(match: re.Match[str]) -> str:
        closing, name, attributes, closing_slash = match.groups()
        known = name.lower() in _KNOWN_TAGS or name.lower() in closed
        if closing or closing_slash or "=" in attributes or attributes.rstrip().endswith("/"):
            return " "
        if known and not attributes.strip():
            return " "
        return match.group()

    text = _TAG.sub(replace, text)
    text = _CUE.sub(" ", text)
    # Twice: a link may sit in the text of an image link. What is left of "](" falls to the
    # brackets' removal, so no third level can come back to life.
    text = _LINK.sub(r" \1 ", _LINK.sub(r" \1 ", text))
    return text.translate({ord(bracket): " " for bracket in "[]{}"})


def _without_comments(text: str) -> str:
    """No `<!-- ... -->`. By hand: a lazy pattern would look for the end again at every start."""
    out: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        out.append(text[at:start])
        at = end + 3
    return " ".join([*out, text[at:].replace("<!--", " ")])


def _without_markdown(text: str) -> str:
    text = _RULE_LINE.sub(_keep_marks_alone, _FENCE.sub("", text))
    text = _LINE_START.sub(_ITEM, text)
    text = _BACKTICK.sub(lambda match: "" if match.group(1) else "'", text)
    text = text.replace("**", " ").replace("__", " ").replace("~~", " ")
    return _LONG_RUN.sub(_shorter_run, text)


def _keep_marks_alone(match: re.Match[str]) -> str:
    """A line of dots is an ellipsis; any other line of marks is a ruler."""
    line = match.group().strip()
    return line if line and set(line) <= set(". ") else ""


def _shorter_run(match: re.Match[str]) -> str:
    mark = match.group(1)
    if mark == ".":
        return "... "
    if mark in _SENTENCE_MARKS:
        return mark + " "
    return " " if mark in _DECORATION else mark * 3


def _joined_lines(text: str) -> str:
    """Lines wrapped in the middle of a sentence become one; a blank line stays as "\n\n", another
    break as "\n".

    A line break is a wrap when the line before it does not end in a mark and either is long (a
    page of plain text wraps near 72) or the next one goes on in lower case.
    """
    out: list[str] = []
    blank = False
    for raw in text.split("\n"):
        line = _SPACES.sub(" ", raw).strip(" \t")
        is_item = line.startswith(_ITEM)
        line = line.replace(_ITEM, "").strip()
        if not line:
            blank = bool(out)
            continue
        last = out[-1] if out else ""
        goes_on = line[0].islower() or len(last) >= 60
        if goes_on and not blank and not is_item and last[-1:].isalnum():
            out.append(" ")
        elif out:
            out.append("\n\n" if blank else "\n")
        out.append(line)
        blank = False
    return "".join(out)
