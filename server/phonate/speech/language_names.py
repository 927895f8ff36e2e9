"""What a language may be called: ISO codes, locales, and names in English and its own words.

Names are compared without case, with `_` as `-`. `auto` (and nothing) leaves the choice to
identification.
"""

from __future__ import annotations

from types import MappingProxyType

from phonate.errors import UnsupportedLanguage

CANONICAL = (
    "chinese", "english", "japanese", "korean", "german",
    "french", "russian", "portuguese", "spanish", "italian",
)  # fmt: skip

ISO_639_1 = MappingProxyType(
    {
        "zh": "chinese", "en": "english", "ja": "japanese", "ko": "korean", "de": "german",
        "fr": "french", "ru": "russian", "pt": "portuguese", "es": "spanish", "it": "italian",
    }
)  # fmt: skip
"""Also what fastText's labels end in."""

_MORE = {
    "chinese": "zho chi cmn mandarin 中文 汉语 漢語 普通话 普通話 国语 國語 zh-hans zh-hant zh-cn zh-tw "
    "zh-hk zh-sg cmn-hans cmn-hant cmn-cn",
    "english": "eng",
    "japanese": "jpn jp 日本語",
    "korean": "kor kr 한국어 한국말 조선말",
    "german": "deu ger deutsch",
    "french": "fra fre français francais",
    "russian": "rus русский русский-язык",
    "portuguese": "por português portugues brazilian",
    "spanish": "spa español espanol castellano castilian",
    "italian": "ita italiano",
}

_ALIASES = {
    **{name: name for name in CANONICAL},
    **ISO_639_1,
    **{alias: name for name, aliases in _MORE.items() for alias in aliases.split()},
}


def canonical(name: str | None, param: str = "language") -> str | None:
    """The canonical name; None for absent and `auto`. A locale is its language (de-CH, pt_BR,
    en-GB-oed). Raises UnsupportedLanguage, which names what there is.

    >>> canonical("de_AT"), canonical("Français"), canonical("AUTO")
    ('german', 'french', None)
    """
    wanted = (name or "auto").strip().casefold().replace("_", "-")
    if wanted == "auto":
        return None
    found = _ALIASES.get(wanted) or _ALIASES.get(wanted.partition("-")[0])
    if found is None:
        raise UnsupportedLanguage(
            f"{param}: {name!r} is no language known here. Known: auto, {', '.join(CANONICAL)}, "
            "their ISO codes, locales and native names.",
            param=param,
        )
    return found
