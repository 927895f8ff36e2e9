"""A registered voice: the value, and what a name may be.

A name is what people call a voice; its key is how names are compared (any case, any Unicode
form); its id is derived from the key and is the only part of a name that reaches the file system.

>>> clean_name("  Grandma  ")
'Grandma'
>>> voice_id("STRASSE") == voice_id("straße")
True
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias
from urllib.parse import unquote

from phonate.errors import InvalidRequest

MAX_NAME_CHARS = 256
MAX_TEXT_CHARS = 2000
"""Longest transcript or description: 30 s of very fast speech is under 1,000 characters."""

VoiceKind: TypeAlias = Literal["registered", "designed", "starter"]

_ID = re.compile(r"voice_[0-9a-f]{24}")
_ID_DIGITS = 24
"""96 bits: among 1,000 voices two ids meet by chance with probability 6e-24."""

_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They turn text around, so that one name looks like another. Joiners and direction marks stay:
Persian, Hebrew and emoji need them."""


class Material(str, Enum):
    """What a voice was made from, hence which files it has."""

    REFERENCE = "reference"
    """reference.wav: mono, 24 kHz, int16."""
    LATENTS = "latents"
    """voice.spk and voice.rvq: made elsewhere, fits one kind of model."""
    EMBEDDING = "embedding"
    """voice.spk alone: speaks without in-context learning."""


FILES: dict[Material, tuple[str, ...]] = {
    Material.REFERENCE: ("reference.wav",),
    Material.LATENTS: ("voice.spk", "voice.rvq"),
    Material.EMBEDDING: ("voice.spk",),
}


@dataclass(frozen=True, slots=True)
class Voice:
    """One complete version of a voice. Replacing a voice makes a new value with the same id."""

    id: str
    """`voice_` and 24 hex digits, derived from the name's key."""
    name: str
    """As it was given: trimmed, NFC."""
    kind: VoiceKind
    material: Material
    created_at: int
    """Unix seconds."""
    language: str | None = None
    """Canonical name (LANGUAGE.md)."""
    description: str | None = None
    ref_text: str | None = None
    """What the reference says; present: in-context learning, absent: x-vector only."""
    consent: str | None = None
    """The id of a consent record, or a reference of the caller's own."""


def clean_name(raw: object, *, param: str = "name") -> str:
    """The name, trimmed and in NFC. Raises InvalidRequest with words that depend on the name
    alone, never on what exists."""
    if not isinstance(raw, str):
        raise InvalidRequest(
            f"{param} must be a string of 1 to {MAX_NAME_CHARS} characters.", param=param
        )
    name = raw.strip()
    if len(name) <= 4 * MAX_NAME_CHARS:  # NFC shortens by 3 at most, and is slow for megabytes
        name = unicodedata.normalize("NFC", name)
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        raise InvalidRequest(
            f"{param} must have 1 to {MAX_NAME_CHARS} characters when trimmed; it has {len(name)}.",
            param=param,
        )
    if _forbidden(name) or _forbidden(_percent_decoded(name)):
        raise InvalidRequest(
            f"{param} must not be '.' or '..' nor contain '/', '\\', NUL, control characters or "
            "their percent-encoded forms. Any other characters of any script are fine.",
            param=param,
        )
    return name


def new_name(raw: object, *, param: str = "name") -> str:
    """`clean_name`, for a voice about to be made: it must not look like somebody's id."""
    name = clean_name(raw, param=param)
    if is_voice_id(name.casefold()):
        raise InvalidRequest(
            f"{param} looks like the id of a voice ('voice_' and 24 hex digits). Choose another.",
            param=param,
        )
    return name


def name_key(name: str) -> str:
    """Equal for names that differ in case or Unicode composition only: NFC(casefold(NFD(name)))."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def voice_id(name: str) -> str:
    """The id of the voice with this name, whether it exists or not."""
    digest = hashlib.sha256(name_key(name).encode("utf-8")).hexdigest()
    return f"voice_{digest[:_ID_DIGITS]}"


def is_voice_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def _forbidden(name: str) -> bool:
    return name.strip() in {"", ".", ".."} or any(
        c in "/\\" or c in _BIDI_CONTROLS or unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"}
        for c in name
    )


def _percent_decoded(name: str) -> str:
    """`%252e` needs two rounds; every round shortens the text, so this ends."""
    while (decoded := unquote(name, errors="replace")) != name:
        name = decoded
    return name
