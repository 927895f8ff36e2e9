"""URLs, e-mail addresses and dotted names, as a person dictates them.

"www.example.com" -> "w w w dot example dot com". The voices lose the dots otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_TOP_LEVEL = (
    "com|org|net|edu|gov|mil|int|info|biz|io|ai|app|dev|me|tv|ly|co|eu|uk|us|ca|au|nz|de|at|ch|fr"
    "|es|it|nl|be|pt|pl|se|no|dk|fi|jp|cn|in|br|ru"
)
_ADDRESS = re.compile(
    r"(?:https?|ftp|wss?)://[^\s<>\"]{1,2048}"
    r"|\bwww\.[^\s<>\"]{1,2048}"
    r"|(?:mailto:)?[\w.+%-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}"
    rf"|\b(?:[\w-]{{1,63}}\.){{1,8}}(?:{_TOP_LEVEL})\b(?:[/:?#][^\s<>\"]{{0,2048}})?",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"^(?:[a-z]{2,5}://|mailto:)", re.IGNORECASE)
_TRAILING = ".,;:!?)'/"
_HOST_END = re.compile(r"[/?#]")
_CODE = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{5,}")
"""Letters and digits mixed, in a path: nothing one could read as a word."""
_TOKEN = re.compile(r"\S+")
_INITIALS = re.compile(r"^\W*(?:[^\W\d_]\.)+[^\W\d_]?\W*$")
_VERSION = re.compile(r"(?<![\d.,])\d+(?:\.\d+){2,}(?![\d,])")
_INNER_DOT = re.compile(r"(?<=\w)\.(?=\w)")


def spell_addresses(text: str, words: Mapping[str, str]) -> str:
    """Replace what looks like an address. `words`: a sign ("." "/" "@" ...) -> how it is said."""

    def replace(match: re.Match[str]) -> str:
        address = match.group()
        bare = address.rstrip(_TRAILING)
        tail = address[len(bare) :].lstrip("/")
        return f" {_spell(bare, words)} {tail}" if bare else address

    return _ADDRESS.sub(replace, text)


def spell_dots(text: str, words: Mapping[str, str]) -> str:
    """The dots inside file names and version numbers; decimals and initials keep theirs. A full
    stop without a blank after it ("the end.The next") gets its blank."""
    dot = f" {words['.']} "
    text = _VERSION.sub(lambda match: match.group().replace(".", dot), text)
    return _TOKEN.sub(lambda match: _spell_dotted(match.group(), dot), text)


def _spell(address: str, words: Mapping[str, str]) -> str:
    address = _SCHEME.sub("", address)
    host_end = _HOST_END.search(address)
    host = address[: host_end.start()] if host_end else address
    rest = address[len(host) :].rstrip("/")
    name, dot, top = host.rpartition(".")
    if dot and len(top) == 2 and top.isalpha():  # a country: said by its letters
        host = f"{name}.{' '.join(top.upper())}"
    if host.lower().startswith("www."):
        host = f"w w w{host[3:]}"
    rest = _CODE.sub(lambda match: " ".join(match.group()), rest)
    spelled = "".join(f" {words[char]} " if char in words else char for char in host + rest)
    return " ".join(spelled.split())


def _spell_dotted(token: str, dot: str) -> str:
    if "." not in token or _INITIALS.match(token):
        return token

    def replace(match: re.Match[str]) -> str:
        before, after = token[match.start() - 1], token[match.end()]
        if before.isdigit() and after.isdigit():
            return "."
        if before.islower() and after.isupper():
            return ". " if _ends_a_word(token, match.start()) else "."
        return dot

    return _INNER_DOT.sub(replace, token)


def _ends_a_word(token: str, at: int) -> bool:
    """The word before the dot has three letters: "end.The", not "Ph.D"."""
    return at >= 3 and token[at - 3 : at].isalpha()
