"""Which voice speaks which language: `--voice-language-route BASE:LANG=VOICE`.

A request names a voice; the language of its text may send it to another. A language without a
route takes the voice's default route (`*`), and without that the voice itself speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from phonate.engine.base import EngineInfo
from phonate.errors import SetupError, UnsupportedLanguage
from phonate.speech.language_names import canonical
from phonate.voices.voice import name_key

DEFAULT = "*"

_FLAG = "--voice-language-route"


class Routes:
    """base voice -> language (or `*`) -> voice. Names are keys as `name_key` makes them."""

    def __init__(self, table: Mapping[str, Mapping[str, str]]) -> None:
        self._table = table

    def voice_for(self, base: str, language: str | None) -> str:
        """The name of the voice that speaks `language` for `base`."""
        routes = self._table.get(name_key(base), {})
        return routes.get(language or DEFAULT) or routes.get(DEFAULT) or base

    def has(self, base: str) -> bool:
        return name_key(base) in self._table

    def voices(self) -> set[str]:
        """Every voice that something is routed to."""
        return {voice for routes in self._table.values() for voice in routes.values()}

    def languages(self, base: str) -> set[str]:
        """Languages that have a route of their own from `base`."""
        return set(self._table.get(name_key(base), {})) - {DEFAULT}


def parse_routes(options: Iterable[str]) -> dict[str, dict[str, str]]:
    """Split at the first `=`, then at the last `:`. Raises SetupError that quotes the flag."""
    table: dict[str, dict[str, str]] = {}
    for option in options:
        left, equals, voice = option.partition("=")
        base, colon, language = left.rpartition(":")
        if not (equals and colon and base.strip() and language.strip() and voice.strip()):
            raise SetupError(
                f"{_FLAG} {option!r}: expected BASE:LANG=VOICE, such as heart:de=anna."
            )
        try:
            code = _language_of(language.strip())
        except UnsupportedLanguage as error:
            raise SetupError(f"{_FLAG} {option!r}: {error.message}") from None
        routes = table.setdefault(name_key(base), {})
        if code in routes:
            raise SetupError(f"{_FLAG} {option!r}: {base.strip()} has a route for {code} already.")
        routes[code] = voice.strip()
    return table


def _language_of(name: str) -> str:
    if name.casefold() in (DEFAULT, "default"):
        return DEFAULT
    return canonical(name, param="LANG") or DEFAULT


def own_routes(info: EngineInfo) -> dict[str, dict[str, str]]:
    """For an engine whose speakers know one language each: from its default voice to the first
    speaker of every other language."""
    if not info.one_language_per_speaker or info.default_speaker is None:
        return {}
    routes: dict[str, str] = {}
    own = next(s.language for s in info.speakers if s.id == info.default_speaker)
    for speaker in info.speakers:
        if speaker.language is not None and speaker.language != own:
            routes.setdefault(speaker.language, speaker.id)
    return {name_key(info.default_speaker): routes} if routes else {}


def make_routes(info: EngineInfo, options: Iterable[str], exists: Callable[[str], bool]) -> Routes:
    """The engine's own routes under the operator's. Raises SetupError for a route to a voice that
    does not exist, by name."""
    table = own_routes(info)
    for base, routes in parse_routes(options).items():
        for language, voice in routes.items():
            if not exists(voice):
                raise SetupError(f"{_FLAG}: the route {base}:{language} leads to {voice!r}, "
                                 "which is no voice here.")  # fmt: skip
        table[base] = {**table.get(base, {}), **routes}
    return Routes(table)
